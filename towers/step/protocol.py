"""What checkpoints, curves and reports need of a step, whoever computes it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import keras
import tensorflow as tf

from towers.step.parameters import SharedVariables
from towers.step.precision import LossScale


class Variables(Protocol):
    """Something that has variables which a checkpoint keeps."""

    @property
    def variables(self) -> Sequence[Any]:
        """The variables, in an order that never changes."""


class Step(Protocol):
    """A `TrainStep`, an `AsyncStep`, or another way of training the same model.

    How a step is called is between it and its trainer.
    """

    @property
    def devices(self) -> Sequence[str]:
        """The towers' devices."""

    @property
    def parameter_device(self) -> str:
        """Where the variables are, or the first copy of them."""

    @property
    def num_copies(self) -> int:
        """How many copies of the variables there are."""

    @property
    def shared(self) -> SharedVariables:
        """The variables."""

    @property
    def optimizer(self) -> keras.optimizers.Optimizer:
        """The Keras optimizer."""

    @property
    def loss_scale(self) -> LossScale | None:
        """The float16 loss scale or None."""

    @property
    def carried(self) -> Variables:
        """What goes on from step to step besides the variables."""

    @property
    def graph(self) -> tf.Graph | None:
        """The graph that runs, or None if there is none before it runs."""

    def check_parameters(self) -> None:
        """Raises RuntimeError unless all copies are the same to the last bit."""

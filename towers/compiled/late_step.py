"""A step that is built once the callbacks have set up the training, as Keras traces its own."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import keras
import tensorflow as tf

from towers.run.checkpoint_files import Groups
from towers.run.processes import Processes
from towers.step.averages import Averaged
from towers.step.builder import TrainStep
from towers.step.parameters import is_seed
from towers.step.placement import Placement
from towers.step.precision import LossScale
from towers.step.results import StepResults
from towers.step.shards import Shard


class LateStep:
    """The step of a compiled model. Until it is built, its variables can be saved and restored.

    Args:
        build: returns the step.
        model: the model; it and its optimizer are built.
        placement: the towers' devices.
        loss_scale: the loss scale that `compile` added, or None.

    Attributes:
        devices: the towers' devices.
        processes: this process alone.
    """

    def __init__(
        self,
        build: Callable[[], TrainStep],
        model: keras.Model,
        placement: Placement,
        loss_scale: LossScale | None,
    ):
        self.devices = placement.devices
        self.processes = Processes()
        self._build, self._model, self._loss_scale = build, model, loss_scale
        self._optimizer = getattr(model.optimizer, "inner_optimizer", model.optimizer)
        self._step: TrainStep | None = None

    def build(self) -> TrainStep:
        """Returns the step, which is built by the first call."""
        self._step = self._step or self._build()
        return self._step

    def __call__(self, shards: tuple[Shard, ...], step: int | tf.Tensor) -> StepResults:
        """Runs the step with this number (the first is 1) and returns its results."""
        return self.build()(shards, step)

    def groups(self) -> Groups:
        """Returns the variables that a checkpoint saves, by group name, whatever is frozen."""
        variables = [variable for variable in self._model.variables if not is_seed(variable)]
        groups = {"variables": variables, "optimizer": self._optimizer.variables}
        return groups | ({"loss_scale": self._loss_scale.variables} if self._loss_scale else {})

    def averaged(self) -> contextlib.AbstractContextManager[None]:
        """Returns the scope in which the variables hold the optimizer's averages, if it has any."""
        return Averaged(self._optimizer, self._model.trainable_variables)

    def check_copies(self) -> None:
        """Raises RuntimeError unless all copies of the variables are bit-identical."""
        if self._step is not None:
            self._step.check_copies()

    @property
    def graph(self) -> tf.Graph:
        """The step's graph."""
        return self.build().graph

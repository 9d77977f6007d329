"""A step that is built once the callbacks have set up the training, as Keras traces its own."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import keras
import tensorflow as tf

from towers.compiled.setting import split_optimizer
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
        build: returns the step, given the optimizer and the loss scale of the model.
        model: the model; it and its optimizer are built.
        placement: the towers' devices.

    Attributes:
        devices: the towers' devices.
        processes: this process alone.
    """

    def __init__(
        self,
        build: Callable[[keras.optimizers.Optimizer, LossScale | None], TrainStep],
        model: keras.Model,
        placement: Placement,
    ):
        self.devices = placement.devices
        self.processes = Processes()
        self._build, self._model, self._placement = build, model, placement
        self._step: TrainStep | None = None

    def build(self) -> TrainStep:
        """Returns the step, which is built by the first call."""
        if self._step is None:
            self._step = self._build(*split_optimizer(self._model, self._placement))
        return self._step

    def __call__(self, shards: tuple[Shard, ...], step: int | tf.Tensor) -> StepResults:
        """Runs the step with this number (the first is 1) and returns its results."""
        return self.build()(shards, step)

    def groups(self) -> Groups:
        """Returns the variables that a checkpoint saves, by group name, whatever is frozen."""
        variables = [variable for variable in self._model.variables if not is_seed(variable)]
        optimizer, loss_scale = split_optimizer(self._model, self._placement)
        groups = {"variables": variables, "optimizer": optimizer.variables}
        return groups | ({"loss_scale": loss_scale.variables} if loss_scale else {})

    def averaged(self) -> contextlib.AbstractContextManager[None]:
        """Returns the scope in which the variables hold the optimizer's averages, if it has any."""
        optimizer, _ = split_optimizer(self._model, self._placement)
        return Averaged(optimizer, self._model.trainable_variables)

    def check_copies(self) -> None:
        """Raises RuntimeError unless all copies of the variables are bit-identical."""
        if self._step is not None:
            self._step.check_copies()

    @property
    def graph(self) -> tf.Graph:
        """The step's graph."""
        return self.build().graph

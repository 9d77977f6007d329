"""A step that is built once the callbacks have set up the training, as Keras traces its own."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import warnings
from collections.abc import Iterator
from typing import Any

import keras
import tensorflow as tf

from towers.batches.shards import Shard
from towers.compiled.data import Data
from towers.compiled.kept import kept
from towers.compiled.limits import steps_per_call
from towers.compiled.logs import updated_logs
from towers.compiled.setting import key_of
from towers.compiled.tower_function import compiled_tower_fn
from towers.devices.placement import Placement
from towers.ground.host import HOST
from towers.ground.private_apis import learning_rate_object
from towers.processes.processes import Processes
from towers.saving.checkpoint_files import Groups
from towers.step.builder import TrainStep, build_train_step
from towers.step.options import FixedLossScale, LossScale, StepOptions
from towers.step.results import StepResults
from towers.variables.optimizers import Averaged, optimizers_in
from towers.variables.shared_variables import is_seed


class LateStep:
    """The step of a compiled model. Until it is built, its variables can be saved and restored.

    It is traced once: later steps of the same model, data, devices and options are the same one.

    Args:
        model: the model; it and its optimizer are built.
        placement: the towers' devices.
        data: the data.
        options: the step's options but for the loss scale, which the model's optimizer has.
        processes: the processes that train the model.

    Attributes:
        devices: the towers' devices.
        processes: as given.
        steps_per_call: how many updates one call makes.
        first_epoch: int64 variable, the epoch with which the training began.
    """

    def __init__(
        self,
        model: keras.Model,
        placement: Placement,
        data: Data,
        options: StepOptions,
        processes: Processes,
    ):
        self.devices = placement.devices
        self.processes = processes
        self.steps_per_call = steps_per_call(model)
        with tf.device(HOST):
            self.first_epoch = tf.Variable(0, dtype=tf.int64, trainable=False, name="first_epoch")
        self._model, self._placement, self._data = model, placement, data
        self._options = options
        self._step: TrainStep | None = None

    def build(self) -> TrainStep:
        """Returns the step, which is built by the first call."""
        if self._step is None:
            model = self._model
            count = self.processes.count
            traced = (self._options, self._placement, key_of(self._data), count)
            optimizer, _ = split_optimizer(model, self._placement)
            rates = tuple(id(learning_rate_object(one)) for one in optimizers_in(optimizer))
            made = kept(model, ("fit", *traced, model.optimizer, rates), self._make)
            self._step, trainable = made
            if trainable != list(map(id, model.trainable_variables)):
                warnings.warn(
                    "`trainable` was changed after the training was traced. As in Keras, the same "
                    "variables are trained as before, until you call model.compile() again.",
                    stacklevel=2,
                )
        return self._step

    def _make(self) -> tuple[TrainStep, list[int]]:
        """Returns the step, and the ids of the variables that it trains."""
        model, placement = self._model, self._placement
        optimizer, loss_scale = split_optimizer(model, placement)
        tower_fn = compiled_tower_fn(model, training=True)
        options = dataclasses.replace(self._options, loss_scale=loss_scale)
        batches = self._data.one_pass(0)
        with unscaling_off(optimizer):
            step = build_train_step(
                tower_fn, model, optimizer, placement, batches, options, self.processes,
                also=functools.partial(updated_logs, model),
            )  # fmt: skip
        return step, list(map(id, model.trainable_variables))

    def __call__(self, shards: tuple[Shard, ...], step: int | tf.Tensor) -> StepResults:
        """Runs the step with this number (the first is 1) and returns its results."""
        return self.build()(shards, step)

    def several(self, queued: tf.Tensor, first: int) -> list[StepResults]:
        """Makes the updates of a call, as `TrainStep.several` does."""
        return self.build().several(queued, first)

    def groups(self) -> Groups:
        """Returns the variables that a checkpoint saves, by group name, whatever is frozen.

        Besides those of every step: the states of the model's metrics, and where it began.
        """
        variables = [variable for variable in self._model.variables if not is_seed(variable)]
        optimizer, loss_scale = split_optimizer(self._model, self._placement)
        groups: dict[str, Any] = {"variables": variables, "optimizer": optimizer.variables}
        groups |= (
            {"loss_scale": loss_scale.variables} if loss_scale and loss_scale.variables else {}
        )
        states = [variable for metric in self._model.metrics for variable in metric.variables]
        groups |= {"metrics": states} if states else {}
        return groups | {"begin": [self.first_epoch]}

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


def split_optimizer(
    model: keras.Model, placement: Placement
) -> tuple[keras.optimizers.Optimizer, LossScale | None]:
    """Returns the optimizer that applies gradients, and the loss scale.

    Both belong to the built model's optimizer, which is trained on as it is: the scale is the one
    that `compile` added, or the `loss_scale_factor` that it was made with.
    """
    optimizer = model.optimizer
    if optimizer.loss_scale_factor is not None:
        return optimizer, FixedLossScale(optimizer.loss_scale_factor)
    if not isinstance(optimizer, keras.optimizers.LossScaleOptimizer):
        return optimizer, None
    if not optimizer.built:
        with placement.scope():
            optimizer.build(model.trainable_variables)
    return optimizer.inner_optimizer, LossScale.of_keras(optimizer)


@contextlib.contextmanager
def unscaling_off(optimizer: keras.optimizers.Optimizer) -> Iterator[None]:
    """The scope in which an optimizer takes gradients as they are: the towers unscale them."""
    factor, optimizer.loss_scale_factor = optimizer.loss_scale_factor, None
    try:
        yield
    finally:
        optimizer.loss_scale_factor = factor

"""Asynchronous updates: each tower takes a batch of its own and changes the variables at once.

No tower waits for another. The price is staleness: between a tower's reading of the variables and
its update the others have changed them, so that its gradient belongs to older values (Recht et al.
2011, "Hogwild!"; Dean et al. 2012, "Large Scale Distributed Deep Networks", section 4.1). Here an
update as a whole is never lost or mixed with another: updates take their turns.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Sequence
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from towers.loop.inputs import Shard
from towers.run.devices import check_devices
from towers.step.arguments import (
    check_arguments,
    check_optimizer,
    check_trainable,
    report_unconnected,
)
from towers.step.carried import CarriedState, with_state
from towers.step.gradients import Gradient, clip_factor, global_norm, scale_gradients
from towers.step.parameters import (
    SharedVariables,
    gather_variables,
    parameter_device,
    shared_variables,
)
from towers.step.precision import LossScale
from towers.step.results import mean_results
from towers.step.states import mean_state
from towers.step.tower import ShardFn, TowerFn, TowerSums, part_seed, run_tower


class Update(NamedTuple):
    """What one update of one tower returns, scalars over its batch.

    Attributes:
        number: which update it was, from 1.
        staleness: how many updates of others came between its reading and its writing.
        loss, weight, metrics, gradient_norm, learning_rate, finite, loss_scale: as in
            `StepResults`.
    """

    number: int
    staleness: int
    loss: tf.Tensor
    weight: tf.Tensor
    metrics: dict[str, tf.Tensor]
    gradient_norm: tf.Tensor
    learning_rate: tf.Tensor
    finite: tf.Tensor
    loss_scale: tf.Tensor


class Wish(NamedTuple):
    """How a tower wants to change the variables.

    Attributes:
        gradients: averaged and clipped, one for each trainable variable, or None.
        changes: by how much each other variable is to move, or None.
        finite: bool scalar, whether the gradient is finite.
    """

    gradients: list[Gradient]
    changes: list[tf.Tensor | None]
    finite: tf.Tensor


def build_async_step(
    tower_fn: TowerFn,
    variables: keras.Model | Sequence[keras.Variable],
    optimizer: keras.optimizers.Optimizer,
    devices: Sequence[str],
    shard_specs: Sequence[Shard],
    *,
    parameters: str = "auto",
    clip_norm: float | None = None,
    accumulate: int = 1,
    seed: int = 0,
    loss_scale: LossScale | None = None,
    compiled: bool = False,
) -> AsyncStep:
    """Returns `step(tower, shards, batch_number) -> Update`, for `AsyncTrainer`.

    Args:
        tower_fn, variables, optimizer, devices, clip_norm, accumulate, seed, loss_scale,
            compiled: as in `build_train_step`. What the function assigns to non-trainable
            variables, such as BatchNorm's averages, is added as a difference.
        shard_specs: the specs of a batch that is one shard: `shard_specs(batches, 1)`.
        parameters: `auto`, `cpu` or `tower0`.

    Raises:
        ValueError: for an argument that cannot work, before anything is traced.
    """
    check_devices(devices)
    check_arguments(devices[:1], shard_specs, clip_norm, accumulate)
    check_optimizer(optimizer)
    if parameters == "replicated":
        raise ValueError(
            "Asynchronous towers share their variables: parameters must be auto, cpu or tower0. "
            "Received 'replicated'."
        )
    device = parameter_device(parameters, devices)
    shard_fn = with_state(tower_fn, ())
    with shared_variables(device):
        shared = gather_variables(
            shard_fn, variables, (shard_specs[0].batch, ()), compiled=compiled
        )
        check_trainable(shared)
        optimizer.build(shared.trainable)
    return AsyncStep(
        shard_fn,
        shared,
        optimizer,
        tuple(devices),
        tuple(shard_specs),
        parameter_device=device,
        clip_norm=clip_norm,
        accumulate=accumulate,
        seed=seed,
        loss_scale=loss_scale,
        compiled=compiled,
    )


class AsyncStep:
    """One update of one tower as a callable, made by `build_async_step`; threads may call it.

    Attributes:
        devices: the towers' devices.
        parameter_device: where the variables are.
        shared: the variables.
        optimizer: the Keras optimizer.
        loss_scale: the float16 loss scale or None.
        carried: nothing; asynchronous towers carry no state.
    """

    def __init__(
        self,
        shard_fn: ShardFn,
        shared: SharedVariables,
        optimizer: keras.optimizers.Optimizer,
        devices: tuple[str, ...],
        shard_specs: tuple[Shard, ...],
        *,
        parameter_device: str,
        clip_norm: float | None,
        accumulate: int,
        seed: int,
        loss_scale: LossScale | None,
        compiled: bool,
    ):
        self.devices = devices
        self.parameter_device = parameter_device
        self.shared = shared
        self.optimizer = optimizer
        self.loss_scale = loss_scale
        self.carried = CarriedState(None, None, devices)
        self._shard_fn = shard_fn
        self._clip_norm = clip_norm
        self._accumulate = accumulate
        self._seed = seed
        self._compiled = compiled
        self._count = 0
        self._turn = threading.Lock()
        signature = [shard_specs, tf.TensorSpec([], tf.int64)]
        self._towers = [
            tf.function(
                functools.partial(self._compute, tower), input_signature=signature, autograph=False
            )
            for tower in range(len(devices))
        ]

    def __call__(self, tower: int, shards: tuple[Shard], batch_number: int) -> Update:
        """Runs a tower on a batch of its own and updates the variables.

        Args:
            tower: the tower's number.
            shards: the batch, as one shard.
            batch_number: which batch of the run it is, from 1; random numbers derive from it.
        """
        computes, apply = self._traced
        read_at = self._count
        wish, results = computes[tower](shards, tf.constant(batch_number, tf.int64))
        with self._turn:
            learning_rate, loss_scale = apply(*wish)
            self._count += 1
            number = self._count
        return Update(
            number=number,
            staleness=number - 1 - read_at,
            **results,
            learning_rate=learning_rate,
            finite=wish.finite,
            loss_scale=loss_scale,
        )

    def rehearse(self, shards: tuple[Shard], batch_number: int = 1) -> None:
        """Runs every tower once and grants no wish: no variable changes.

        A look at where ops run needs it, since one update is that of one tower only.

        Args:
            shards, batch_number: as for an update.
        """
        for compute in self._traced[0]:
            compute(shards, tf.constant(batch_number, tf.int64))

    @property
    def graph(self) -> tf.Graph:
        """The graph of the first tower; those of the others are like it."""
        return self._traced[0][0].graph

    @property
    def num_copies(self) -> int:
        """How many copies of the variables there are."""
        return 1

    def check_parameters(self) -> None:
        """Does nothing: there is one copy."""

    def count_from(self, number: int) -> None:
        """Says how many updates the run has done, before it goes on."""
        self._count = number

    def prepare(self) -> None:
        """Traces what the threads are going to call; they would all do so at once."""
        _ = self._traced

    @functools.cached_property
    def _traced(self) -> tuple[list[Any], Any]:
        """One trace for each tower, and one for the updates of all."""
        towers = [tower.get_concrete_function() for tower in self._towers]
        wish, _ = towers[0].structured_outputs
        specs = [
            None if part is None else tf.type_spec_from_value(part)
            for part in [*wish.gradients, *wish.changes]
        ]
        count = len(wish.gradients)
        apply = tf.function(self._apply, autograph=False).get_concrete_function(
            specs[:count], specs[count:], tf.TensorSpec([], tf.bool)
        )
        return towers, apply

    def _compute(
        self, tower: int, shards: tuple[Shard], batch_number: tf.Tensor
    ) -> tuple[Wish, dict[str, Any]]:
        """One forward and backward pass, against the variables as they are."""
        with tf.device(self.devices[tower]), tf.name_scope(f"tower_{tower}"):
            with tf.name_scope("parameters"):
                values = self.shared.read()
            sums = run_tower(
                self._shard_fn,
                self.shared,
                values,
                shards[0]._replace(batch=(shards[0].batch, ())),
                tower=tower,
                seeds=[part_seed(self._seed, batch_number, p) for p in range(self._accumulate)],
                loss_scale=None if self.loss_scale is None else self.loss_scale.read(),
                compiled=self._compiled,
            )
            share = tf.math.reciprocal_no_nan(sums.weight)
            norm = global_norm(sums.gradients, sums.weight.dtype) * share
            gradients = scale_gradients(sums.gradients, share * clip_factor(norm, self._clip_norm))
            wish = Wish(gradients, self._changes(sums, values), tf.math.is_finite(norm))
            return wish, {**mean_results([sums]), "gradient_norm": norm}

    def _changes(self, sums: TowerSums, values: dict[int, Any]) -> list[tf.Tensor | None]:
        """Returns by how much the tower wants to move each non-trainable variable, or None."""
        changes: list[tf.Tensor | None] = []
        for state, value in zip(self.shared.states, sums.states, strict=True):
            new = mean_state(value, sums.weight, values[id(state)])
            changes.append(None if new is None else new - values[id(state)])
        return changes

    def _apply(
        self,
        gradients: Sequence[Gradient],
        changes: Sequence[tf.Tensor | None],
        finite: tf.Tensor,
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Grants a tower's wish; returns the learning rate and the loss scale of this update."""
        with tf.device(self.parameter_device), tf.name_scope("update"):
            learning_rate = tf.identity(self.optimizer.learning_rate)
            loss_scale = tf.ones([]) if self.loss_scale is None else self.loss_scale.read()
            tf.cond(finite, lambda: self._assign(gradients, changes), lambda: None)
            if self.loss_scale is not None:
                self.loss_scale.update(finite)
            return learning_rate, loss_scale

    def _assign(self, gradients: Sequence[Gradient], changes: Sequence[tf.Tensor | None]) -> None:
        report_unconnected(self.shared.trainable, gradients)
        pairs = zip(gradients, self.shared.trainable, strict=True)
        self.optimizer.apply(*zip(*[pair for pair in pairs if pair[0] is not None], strict=True))
        for state, change in zip(self.shared.states, changes, strict=True):
            if change is not None:
                state.assign_add(change)

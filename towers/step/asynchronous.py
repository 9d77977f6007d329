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
from tensorflow.types.experimental import ConcreteFunction

from towers.step.arguments import check_optimizer, check_trainable
from towers.step.copies import Copies
from towers.step.exchange import total_of
from towers.step.gradients import scale_gradients
from towers.step.options import StepOptions
from towers.step.placement import Placement
from towers.step.program import make_program
from towers.step.results import mean_results
from towers.step.shards import Batches, Shard, shard_specs
from towers.step.tower import Tower
from towers.step.tower_function import TowerFn
from towers.step.update import Change, Update, Used


class TowerUpdate(NamedTuple):
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


def build_async_step(
    tower_fn: TowerFn,
    variables: keras.Model | Sequence[keras.Variable],
    optimizer: keras.optimizers.Optimizer,
    placement: Placement,
    batches: Batches | tf.data.Dataset,
    options: StepOptions = StepOptions(),
) -> AsyncStep:
    """Returns `step(tower, shards, batch_number) -> TowerUpdate`, for `AsynchronousUpdates`.

    Args:
        tower_fn, variables, optimizer, placement, batches: as in `build_train_step`. What the
            function assigns to non-trainable variables, such as BatchNorm's averages, is added
            as a difference.
        options: as in `build_train_step`; nothing can be carried, since batches have no order.

    Raises:
        ValueError: for an argument that cannot work, before anything is traced.
    """
    check_optimizer(optimizer)
    check_shared(placement, options)
    specs = shard_specs(batches, 1)
    program = make_program(tower_fn, variables, placement, specs, options)
    check_trainable(program.shared)
    copies = Copies(program.shared, optimizer, placement.copy_devices)
    towers = [
        Tower(program, program.shared.all, device, index, options)
        for index, device in enumerate(placement.devices)
    ]
    return AsyncStep(towers, Update(copies, program.carried, options), specs)


def check_shared(placement: Placement, options: StepOptions) -> None:
    """Raises ValueError for what asynchronous towers cannot do."""
    if placement.parameters == "replicated":
        raise ValueError(
            "Asynchronous towers share their variables: parameters must be auto, cpu or tower0. "
            "Received 'replicated'."
        )
    if options.carried is not None:
        raise ValueError(
            "Asynchronous towers take batches in no fixed order, so that no state can go on from "
            f"batch to batch. Received carried={options.carried}; use build_train_step."
        )


class AsyncStep:
    """One update of one tower as a callable, made by `build_async_step`; threads may call it.

    Args:
        towers: the towers.
        update: what changes the variables.
        shard_specs: of a batch that is one shard.

    Attributes:
        towers, update: as given.
        devices: the towers' devices.
    """

    def __init__(self, towers: Sequence[Tower], update: Update, shard_specs: tuple[Shard, ...]):
        self.towers = list(towers)
        self.update = update
        self.devices = [tower.device for tower in towers]
        self._count = 0
        self._turn = threading.Lock()
        self._signature = [shard_specs, tf.TensorSpec([], tf.int64)]

    def __call__(self, tower: int, shards: tuple[Shard, ...], batch_number: int) -> TowerUpdate:
        """Runs a tower on a batch of its own and updates the variables.

        Args:
            tower: the tower's number.
            shards: the batch, as one shard.
            batch_number: which batch of the run it is, from 1; random numbers derive from it.
        """
        computes, apply = self._traced
        read_at = self._count
        change, results = computes[tower](shards, tf.constant(batch_number, tf.int64))
        with self._turn:
            used = apply(change)
            self._count += 1
            number = self._count
        return TowerUpdate(
            number=number,
            staleness=number - 1 - read_at,
            **results,
            gradient_norm=change.gradient_norm,
            finite=change.finite,
            **used._asdict(),
        )

    def dry_run(self, shards: tuple[Shard, ...], batch_number: int = 1) -> None:
        """Runs every tower once and applies nothing: no variable changes.

        One update runs one tower only; this shows where the ops of all of them run.

        Args:
            shards, batch_number: as for an update.
        """
        for compute in self._traced[0]:
            compute(shards, tf.constant(batch_number, tf.int64))

    @property
    def graph(self) -> tf.Graph:
        """The graph of the first tower; those of the others are like it."""
        return self._traced[0][0].graph

    def count_from(self, number: int) -> None:
        """Says how many updates the run has done, before it goes on."""
        self._count = number

    def prepare(self) -> None:
        """Traces what the threads are going to call; they would all do so at once."""
        _ = self._traced

    @functools.cached_property
    def _traced(self) -> tuple[list[ConcreteFunction], ConcreteFunction]:
        """One trace for each tower, and one for the updates of all."""
        computes = [self._trace(tower) for tower in self.towers]
        change, _ = computes[0].structured_outputs
        specs = tf.nest.map_structure(
            lambda part: None if part is None else tf.type_spec_from_value(part), change
        )
        apply = tf.function(self._apply, autograph=False).get_concrete_function(specs)
        return computes, apply

    def _trace(self, tower: Tower) -> ConcreteFunction:
        compute = functools.partial(self._compute, tower)
        function = tf.function(compute, input_signature=self._signature, autograph=False)
        return function.get_concrete_function()

    def _compute(
        self, tower: Tower, shards: tuple[Shard, ...], batch_number: tf.Tensor
    ) -> tuple[Change, dict[str, Any]]:
        """Returns the change of one forward and backward pass, and the means of its batch."""
        with tower.scope():
            values = tower.read()
            sums = tower.run(values, shards[0], batch_number, first_part=0)
            before = [values[id(state)] for state in self.update.copies.shared.states]
            change = self.update.average(total_of(sums), before)
            return as_differences(change, before), mean_results(sums)

    def _apply(self, change: Change) -> Used:
        return self.update.apply(change, add_states=True)


def as_differences(change: Change, before: Sequence[Any]) -> Change:
    """Returns a change whose gradients are averaged and whose states are differences."""
    return change._replace(
        gradients=[scale_gradients(own, change.factor) for own in change.gradients],
        factor=None,
        states=[
            None if new is None else new - old
            for new, old in zip(change.states, before, strict=True)
        ],
    )

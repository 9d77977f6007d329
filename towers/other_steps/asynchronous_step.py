"""The asynchronous step: each tower trains on its own batch and updates the variables at once.

No tower waits for another. The price is staleness: other towers change the variables between a
tower's read and its update, so its gradient belongs to older values (Recht et al. 2011, "Hogwild!";
Dean et al. 2012, "Large Scale Distributed Deep Networks", section 4.1). Updates run one at a time:
none is lost or mixed with another.
"""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Sequence
from typing import Any, NamedTuple

import keras
import tensorflow as tf
from tensorflow.types.experimental import ConcreteFunction

from towers.batches.shards import Batches, Shard
from towers.devices.placement import Placement
from towers.loop.updates import Position
from towers.other_steps.asynchronous_updates import AsynchronousUpdates
from towers.processes.processes import Processes
from towers.saving.checkpoint_files import Groups
from towers.step.builder import Blueprint, draw_blueprint
from towers.step.exchange import Total
from towers.step.options import StepOptions
from towers.step.results import StepResults, TowerResults, mean_results
from towers.step.tower import Tower
from towers.step.tower_function import TowerFn, check_kinds
from towers.step.tracing import number_on_host, trace
from towers.step.update import Change
from towers.travel.gradients import scale_gradients
from towers.travel.packing import upload_for
from towers.variables.find_variables import captured_error


def build_async_step(
    tower_fn: TowerFn,
    variables: keras.Model | Sequence[keras.Variable],
    optimizer: keras.optimizers.Optimizer,
    placement: Placement,
    batches: Batches | tf.data.Dataset,
    options: StepOptions = StepOptions(),
) -> AsyncStep:
    """Returns `step(tower, shards, batch_number) -> AsyncResults`, for a `Trainer`.

    Args:
        tower_fn, variables, optimizer, placement, batches: as in `build_train_step`. Values that
            the function assigns to non-trainable variables, such as BatchNorm's averages, are
            added as differences.
        options: as in `build_train_step`; a carried state is refused, since batches have no order.

    Raises:
        ValueError: an argument is wrong. Optimizer, placement, options, batches and variables are
            checked before the step is traced.
    """
    check_shared(placement, options)
    blueprint = draw_blueprint(
        tower_fn, variables, optimizer, placement, batches, options, Processes(), jointly=False
    )
    shared = blueprint.program.shared
    if shared.captured:
        reason = "another tower may change them before the backward pass"
        raise captured_error(shared.captured, reason)
    return AsyncStep(blueprint)


def check_shared(placement: Placement, options: StepOptions) -> None:
    """Raises ValueError for a placement or options that asynchronous towers cannot use."""
    check_kinds(placement, options)
    if placement.parameters == "replicated":
        raise ValueError(
            "Asynchronous towers share their variables: parameters must be auto, cpu or tower0. "
            f"Received 'replicated', exchange={placement.exchange!r}."
        )
    placement.check_one_device("An asynchronous step")
    if options.steps_per_call != 1:
        raise ValueError(
            "Asynchronous towers take one batch at a time. Received steps_per_call="
            f"{options.steps_per_call}; leave it out, or use build_train_step."
        )
    if options.carried is not None:
        raise ValueError(
            "Asynchronous towers take batches in no fixed order, so no state can be carried from "
            f"batch to batch. Received carried={options.carried}; use build_train_step."
        )


class AsyncResults(NamedTuple):
    """The results of one update by one tower.

    Attributes:
        number: the update's number, from 1.
        staleness: how many updates of other towers came between its read and its write.
        results: those of its batch, in which `towers` are those of the one tower, scalars.
    """

    number: int
    staleness: int
    results: StepResults


class AsyncStep:
    """One update by one tower as a callable, made by `build_async_step`; threads may call it.

    Attributes:
        towers: the towers.
        update: changes the variables.
        devices: the towers' devices.
        processes: this process alone.
        computes: for each tower, what computes the change for a batch; no variable changes.
        specs: the specs of the shards that it takes.
    """

    def __init__(self, blueprint: Blueprint):
        self.towers = blueprint.towers
        self.update = blueprint.update
        self.devices = [tower.device for tower in self.towers]
        self.processes = Processes()
        self.specs = blueprint.specs
        self._probe = blueprint.probe
        self._count = 0
        self._turn = threading.Lock()
        self.computes = [self._trace(tower, blueprint.specs) for tower in self.towers]
        self._apply_change = self._trace_update()

    def __call__(self, tower: int, shards: tuple[Shard, ...], batch_number: int) -> AsyncResults:
        """Runs one tower on one batch and updates the variables.

        Args:
            tower: the tower's index.
            shards: the batch, as a tuple of one shard.
            batch_number: the number of the batch in the run, from 1; random numbers derive from
                it.
        """
        self.update.copies.refresh()
        self._probe.ask(shards)
        count_at_read = self._count
        change, own = self.computes[tower](shards, number_on_host(batch_number))
        with self._turn:
            scales = self._apply_change(change)
            self._count += 1
            number = self._count
            self.update.copies.wrote()
        results = StepResults(**own._asdict(), finite=change.finite, **scales, towers=own)
        return AsyncResults(number, number - 1 - count_at_read, results)

    def make_updates(
        self, batches: Batches | tf.data.Dataset, position: Position = Position()
    ) -> AsynchronousUpdates:
        """Returns the updates that a `Trainer` makes with this step."""
        return AsynchronousUpdates(self, batches, position=position)

    @property
    def graph(self) -> tf.Graph:
        """The graph of the first tower; the other towers' graphs have the same ops."""
        return self.computes[0].graph

    def groups(self) -> Groups:
        """Returns the variables that a checkpoint saves, by group name."""
        return self.update.groups()

    def averaged(self) -> contextlib.AbstractContextManager[None]:
        """Returns the scope in which the variables hold the averages; enter it while paused."""
        return self.update.averaged()

    def check_copies(self) -> None:
        """Does nothing: asynchronous towers share one copy of the variables."""

    def count_from(self, number: int) -> None:
        """Sets how many updates the run has done so far."""
        self._count = number

    def _trace_update(self) -> ConcreteFunction:
        """Returns the update, which all towers share."""
        change, _ = self.computes[0].structured_outputs
        specs = tf.nest.map_structure(
            lambda part: None if part is None else tf.type_spec_from_value(part), change
        )

        def apply(change: Change) -> Any:
            return self.update.apply(change, add_states=True)

        return trace(apply, self.update.copies.devices[0], specs)

    def _trace(self, tower: Tower, shard_specs: tuple[Shard, ...]) -> ConcreteFunction:
        compute = functools.partial(self._compute, tower)
        specs = (shard_specs, tf.TensorSpec([], tf.int64))
        return trace(compute, tower.device, *specs, shared=self.update.copies.shared)

    def _compute(
        self, tower: Tower, shards: tuple[Shard, ...], batch_number: tf.Tensor
    ) -> tuple[Change, TowerResults]:
        """Returns the change of one forward and backward pass, and the means over its batch."""
        copies = self.update.copies
        upload = upload_for(copies.shared.read_whole, copies.devices, [tower.device])
        with tower.scope():
            values, totals = tower.read(upload), None
            if tower.needs_denominators:
                totals = tower.weigh(shards[0], batch_number, upload)
            sums = tower.run(values, shards[0], batch_number, totals)
            before = [values[id(state)] for state in copies.shared.states]
            alone = Total(sums, [sums.gradients], sums.weight, [sums.carried], sums.gradients)
            change = self.update.average(alone, before)
            own = TowerResults(**mean_results(sums), gradient_norm=change.gradient_norm)
            return as_differences(change, before), own


def as_differences(change: Change, before: Sequence[Any]) -> Change:
    """Returns a change with averaged gradients; its states are differences, but for bools."""
    return change._replace(
        gradients=[scale_gradients(summed, change.factor) for summed in change.gradients],
        factor=None,
        states=[
            new if new is None or new.dtype == tf.bool else new - old
            for new, old in zip(change.states, before, strict=True)
        ],
    )

"""Asynchronous updates: towers run independently; updates are reported in their order."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from towers.batches.feed import StopTraining, iterator_of
from towers.batches.shards import Batches, split
from towers.loop.updates import Action, Position, Step, StepReport, Updates
from towers.other_steps.tower_threads import FinishedUpdate, TowerThreads
from towers.step.results import StepResults
from towers.step.tracing import number_on_host


class AsynchronousUpdates(Updates):
    """The updates of towers that run independently, for `Trainer`.

    Towers keep running while actions run, at most a few updates ahead of them; an action that reads
    variables stops them with `paused()`. All towers finish before an epoch ends. After an action
    has asked to stop, updates that are done or in progress are still reported.

    In a `StepReport`, `results` are the results of one tower's update; in `results.towers` the
    other towers are NaN, with weight 0. `seconds` is the time since the previous update of any
    tower. `waits` is the time for which this tower waited for its batch, which may be longer.

    Args:
        step: the step from `build_async_step`.
        batches, position: as in `Updates`; each tower takes whole batches.

    Attributes:
        position: where the training continues: exactly the batches before it have been applied.
            It is up to date within `paused()` and between epochs. After an error, all batches
            before it and possibly some after it have been applied.
    """

    step: Any  # It has more than every step has.

    def __init__(
        self,
        step: Step,
        batches: Batches | tf.data.Dataset,
        *,
        position: Position = Position(),
    ):
        super().__init__(step, batches, position=position)
        self._threads: TowerThreads | None = None

    def run_epoch(self, steps: int | None, report: Action) -> None:
        """Makes the updates from `position` to the end of its epoch and reports each."""
        begin = self.position
        batches = self._batches(begin.epoch, begin.epoch_step)
        dataset = split(batches, 1)
        self._check(dataset, steps)
        limit = None if steps is None else steps - begin.step
        self._threads = threads = TowerThreads(self.step, dataset, begin, limit)
        stop: StopTraining | None = None
        try:
            with threads as updates:
                for finished, is_last in updates:
                    try:
                        report(self._report(finished, begin, is_last))
                    except StopTraining as request:  # What is done already is still reported.
                        stop = stop or request
                        threads.close()
                if stop is not None:
                    raise stop
        finally:
            self.position, num_updates = threads.position, threads.num_updates
            self._threads = None
        if not num_updates and self.position == Position(begin.step, begin.epoch + 1, 0):
            self.position = begin
            self.position = begin.after_empty_epoch()

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """The scope in which no tower reads or writes variables; running updates finish first.

        Scopes may be nested. An error of a tower or of the data is raised on entry.
        """
        if self._threads is None:
            yield
            return
        with self._threads.pause():
            self.position = self._threads.position
            yield

    def dry_run(self) -> None:
        """Runs every tower once on the epoch's first batch; no variable changes.

        An update runs one tower only; a dry run shows on which devices the ops of all towers run.
        """
        dataset = split(self._batches(self.position.epoch, 0), 1)
        for shards in iterator_of(dataset.take(1)):
            for compute in self.step.computes:
                compute(shards, number_on_host(1))

    def _report(self, finished: FinishedUpdate, begin: Position, is_last: bool) -> StepReport:
        update, tower = finished.results, finished.tower
        waits = np.zeros(len(self.step.devices))
        waits[tower] = finished.wait
        results = as_one_of(update.results, tower, len(waits))
        step = int(update.number)
        self._finite.add(step, results, tower)
        before = Position(step - 1, begin.epoch, begin.epoch_step + step - 1 - begin.step)
        return StepReport(
            step=step,
            epoch=begin.epoch,
            epoch_end=is_last,
            position=before.after_step(epoch_end=is_last),
            results=results,
            seconds=finished.seconds,
            waits=waits.tolist(),
            tower=tower,
            staleness=int(update.staleness),
        )


def as_one_of(results: StepResults, tower: int, num_towers: int) -> StepResults:
    """Returns the results of one tower's update as those of a step, the other towers NaN."""

    def alone(value: Any, others: float = np.nan) -> Any:
        if value is None:
            return None
        each = np.full([num_towers, *np.shape(value)], others)
        each[tower] = value
        return each

    own = results.towers
    weights = {name: alone(weight, 0) for name, weight in own.metric_weights.items()}
    each = tf.nest.map_structure(alone, own)
    return results._replace(
        towers=each._replace(weight=alone(own.weight, 0), metric_weights=weights)
    )

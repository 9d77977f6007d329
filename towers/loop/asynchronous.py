"""Asynchronous updates: every tower goes on by itself; updates are reported in their order."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from towers.loop.finite import FiniteCheck
from towers.loop.tower_threads import Arrival, TowerThreads
from towers.loop.updates import Position, Report, StepReport, end_empty_epoch
from towers.run.checkpoint_files import Groups
from towers.step.asynchronous import AsyncStep, TowerUpdate
from towers.step.results import StepResults, TowerResults
from towers.step.shards import Batches, split


class AsynchronousUpdates:
    """The updates that each tower makes by itself, for `Trainer`.

    The towers go on while actions run; `paused()` makes them wait for one that looks at the
    variables. They meet at the end of each epoch. Of a report, `results` are those of its tower;
    `results.towers` also holds the latest of each other tower, NaN before its first, with the
    weight 0. `seconds` is the time since the update before it, whichever tower made that, and
    `waits` how long its own tower waited for its batch, which may be longer.

    Args:
        step: what `build_async_step` returned.
        batches: `batches(epoch, first_step) -> tf.data.Dataset`; each tower takes whole batches.
        position: where to begin.

    Attributes:
        position: where the training goes on: all batches before it, and no others, have been
            applied; it is right within `paused()` and between epochs. After an error no batch
            before it is missing, but some after it may have been applied.
    """

    def __init__(self, step: AsyncStep, batches: Batches, *, position: Position = Position()):
        self.position = position
        self._async_step = step
        self._batches = batches
        self._finite = FiniteCheck()
        self._threads: TowerThreads | None = None
        self._latest: TowerResults | None = None

    def run_epoch(self, steps: int | None, report: Report) -> None:
        """Makes the updates from `position` to the end of its epoch, and reports each."""
        begin = self.position
        dataset = split(self._batches(begin.epoch, begin.epoch_step), 1)
        limit = None if steps is None else steps - begin.step
        self._threads = TowerThreads(self._async_step, dataset, begin, limit)
        try:
            with self._threads as arrivals:
                for arrival, is_last in arrivals:
                    report(self._report(arrival, begin, is_last))
        finally:
            self.position, num_updates = self._threads.position, self._threads.num_done
            self._threads = None
        if not num_updates and self.position == Position(begin.step, begin.epoch + 1, 0):
            self.position = begin
            self.position = end_empty_epoch(begin)

    def finish(self) -> None:
        """Raises NonFiniteGradientError if the last gradient was not finite."""
        self._finite.check()

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """The scope in which no tower reads or writes: updates under way are done before it.

        Scopes may be nested. If a tower or the data has failed, its error is raised here.
        """
        if self._threads is None:
            yield
            return
        with self._threads.pause():
            self.position = self._threads.position
            yield

    def dry_run(self) -> None:
        """Runs every tower once on a first batch of the epoch and changes nothing.

        An update runs one tower only; this runs all of them, such as to see where their ops run.
        """
        dataset = split(self._batches(self.position.epoch, 0), 1)
        for shards in dataset.take(1):
            self._async_step.dry_run(shards)

    def groups(self) -> Groups:
        """Returns the variables that a checkpoint keeps, by the name of their group."""
        return self._async_step.update.groups()

    def check_copies(self) -> None:
        """Does nothing: asynchronous towers share one copy."""

    @property
    def graph(self) -> tf.Graph:
        """The graph of the first tower."""
        return self._async_step.graph

    def _report(self, arrival: Arrival, begin: Position, is_last: bool) -> StepReport:
        update, tower = arrival.update, arrival.tower
        waits = np.zeros(len(self._async_step.devices))
        waits[tower] = arrival.wait
        results = self._results(tower, update)
        step = int(update.number)
        self._finite.add(step, results, tower)
        before = Position(step - 1, begin.epoch, begin.epoch_step + step - 1 - begin.step)
        return StepReport(
            step=step,
            epoch=begin.epoch,
            epoch_end=is_last,
            position=before.after_step(epoch_end=is_last),
            results=results,
            seconds=arrival.seconds,
            waits=waits.tolist(),
            tower=tower,
            staleness=int(update.staleness),
        )

    def _results(self, tower: int, update: TowerUpdate) -> StepResults:
        """Returns an update's results; of the other towers, what they had in their latest."""
        self._latest = self._with_latest(tower, update)
        return StepResults(
            loss=update.loss,
            weight=update.weight,
            metrics=update.metrics,
            gradient_norm=update.gradient_norm,
            learning_rate=update.learning_rate,
            finite=update.finite,
            loss_scale=update.loss_scale,
            towers=self._latest,
        )

    def _with_latest(self, tower: int, update: TowerUpdate) -> TowerResults:
        """Returns the latest results of each tower, among them those of this update."""
        num_towers = len(self._async_step.devices)
        nothing = np.full(num_towers, np.nan)
        latest = self._latest or TowerResults(
            nothing, nothing, dict.fromkeys(update.metrics, nothing), nothing
        )
        weight = np.zeros(num_towers)
        weight[tower] = update.weight
        return TowerResults(
            loss=with_value(latest.loss, tower, update.loss),
            weight=weight,
            metrics={
                name: with_value(latest.metrics[name], tower, value)
                for name, value in update.metrics.items()
            },
            gradient_norm=with_value(latest.gradient_norm, tower, update.gradient_norm),
        )


def with_value(values: np.ndarray, index: int, value: Any) -> np.ndarray:
    """Returns a copy of a vector with one number replaced."""
    copy = np.array(values)
    copy[index] = value
    return copy

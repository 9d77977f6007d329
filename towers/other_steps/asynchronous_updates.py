"""Asynchronous updates: towers run independently; updates are reported in their order."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from towers.batches.feed import PATIENCE, StopTraining, iterator_of
from towers.batches.shards import Shard, split
from towers.loop.updates import Action, Position, StepReport, Updates
from towers.step.results import StepResults
from towers.step.tracing import number_on_host

MOST_UNREPORTED = 8  # Updates per tower, done or under way, by which actions may lag behind.


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
    _threads: TowerThreads | None = None  # Those of the epoch that runs.

    def run_epoch(self, steps: int | None, report: Action) -> None:
        """Makes the updates from `position` to the end of its epoch and reports each."""
        begin = self.position
        dataset = split(self._batches(begin.epoch, begin.epoch_step), 1)
        self._check(dataset, steps)
        limit = None if steps is None else steps - begin.step
        self._threads = threads = TowerThreads(self.step, dataset, begin, limit)
        stop: StopTraining | None = None
        try:
            with threads as updates:
                for update in updates:
                    self._finite.add(update.step, update.results, update.tower)
                    try:
                        report(update)
                    except StopTraining as request:  # What is done already is still reported.
                        stop = stop or request
                        threads.close()
                if stop is not None:
                    raise stop
        finally:
            self.position, self._threads = threads.position, None
        if self.position == Position(begin.step, begin.epoch + 1, 0):
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


class TowerThreads:
    """The towers' threads in one epoch, a context manager for an iterator over their updates.

    Towers do not run ahead of it by more than a few updates: when they are stopped, almost all
    have been seen.

    Args:
        step, dataset: the step, and batches, each as a tuple of one shard.
        begin: the position before the first batch.
        limit: the largest number of batches to take, or None.
    """

    def __init__(self, step: Any, dataset: tf.data.Dataset, begin: Position, limit: int | None):
        self._step, self._begin, self._limit = step, begin, limit
        self._num_taken = self._num_done = self._num_reported = self._num_pauses = 0
        self._not_done: set[int] = set()  # Batches that were taken.
        self._failed: set[int] = set()  # Those of them on which a tower failed.
        self._done: dict[int, StepReport] = {}  # Updates that are not reported, by their numbers.
        self._error: BaseException | None = None  # The first error of a tower or of the data.
        self._is_exhausted = self._is_closed = False
        self._last_time = self._resumed = time.perf_counter()
        self._state = threading.Condition()  # Guards all attributes above.
        self._dataset = dataset.prefetch(len(step.devices))
        self._batches: Iterator[tuple[Shard, ...]] | None = None
        self._input = threading.Lock()  # Guards the two above; taken before `_state`.
        self._threads = [
            threading.Thread(target=self._work, args=(tower,), name=f"tower_{tower}", daemon=True)
            for tower in range(len(step.devices))
        ]

    def __enter__(self) -> Iterator[StepReport]:
        self._step.count_from(self._begin.step)
        for thread in self._threads:
            thread.start()
        return self._in_order()

    def close(self) -> None:
        """Lets the towers finish their updates and take no other batch."""
        with self._state:
            self._is_closed = True
            self._state.notify_all()

    def __exit__(self, *_: object) -> None:
        self.close()
        with self._state:
            self._state.wait_for(self._is_still)
        deadline = time.monotonic() + PATIENCE
        for thread in self._threads:  # One that waits for the data set ends by itself later.
            thread.join(max(0.0, deadline - time.monotonic()))
        held, self._batches = [self._batches], None
        # TensorFlow lets go of an iterator only when its data set has answered: it may take long.
        threading.Thread(target=held.clear, name="drop", daemon=True).start()

    @property
    def position(self) -> Position:
        """Where the training continues: the first batch not done. Use it while no tower works."""
        begin, done = self._begin, self._num_done
        if self._is_exhausted and not self._not_done:
            return Position(begin.step + done, begin.epoch + 1, 0)
        first = min(self._not_done, default=done + 1)
        return Position(begin.step + done, begin.epoch, begin.epoch_step + first - 1)

    @contextlib.contextmanager
    def pause(self) -> Iterator[None]:
        """The scope in which no tower works; raises an error of a tower or of the data."""
        with self._state:
            self._num_pauses += 1
        try:
            with self._state:
                self._state.wait_for(self._is_still)
                if self._error is not None:
                    raise self._error
            yield
        finally:
            with self._state:
                self._num_pauses -= 1
                if not self._num_pauses:
                    self._last_time = self._resumed = time.perf_counter()
                    self._state.notify_all()

    def _in_order(self) -> Iterator[StepReport]:
        """Yields the updates by number, each as soon as it is known whether another follows."""
        for number in itertools.count(self._begin.step + 1):
            with self._state:
                self._state.wait_for(functools.partial(self._knows, number))
                report = self._done.pop(number, None)
                is_last = self._is_exhausted and not self._done and not self._not_done
            if report is None:
                break
            if is_last:
                end = Position(number, self._begin.epoch + 1, 0)
                report = dataclasses.replace(report, epoch_end=True, position=end)
            yield report
            with self._state:  # A tower may take another batch.
                self._num_reported += 1
                self._state.notify_all()
        if self._error is not None:
            raise self._error

    def _work(self, tower: int) -> None:
        """Runs in a tower's thread: makes updates until no batch is left."""
        while (taken := self._take()) is not None:
            try:
                self._update(tower, *taken)
            except BaseException as error:  # The thread that iterates raises it.
                self._fail(error, taken[0])
                return

    def _take(self) -> tuple[int, Any, float] | None:
        """Returns a batch's number, the batch and its wait in seconds; None at the end."""
        started = time.perf_counter()
        with self._input:
            if self._is_over:
                return None
            try:
                self._batches = self._batches or iterator_of(self._dataset)
                shards = next(self._batches, None)
            except BaseException as error:
                self._fail(error)
                return None
            is_last = self._num_taken + 1 == self._limit and self._is_at_end(self._batches)
            with self._state:
                if shards is None:
                    self._is_exhausted = True
                    self._state.notify_all()
                elif not self._may_go_on():
                    self._state.wait_for(self._may_go_on)
                    self._resumed = time.perf_counter()  # It was no wait for data.
                if self._is_over:
                    return None
                self._num_taken += 1
                self._not_done.add(self._num_taken)
                self._is_exhausted = is_last
                wait = time.perf_counter() - max(started, self._resumed)
                return self._num_taken, shards, wait

    def _is_at_end(self, batches: Iterator[Any]) -> bool:
        """Returns whether no batch follows; an error in a following batch is ignored here."""
        try:
            return next(batches, None) is None
        except Exception:
            return False

    def _update(self, tower: int, number: int, shards: Any, wait: float) -> None:
        """Makes an update by a tower, with the batch of this number."""
        begin, waits = self._begin, [0.0] * len(self._threads)
        made = self._step(tower, shards, begin.step + number)
        made = tf.nest.map_structure(as_number, made)  # Waits for the tower's device.
        step, results = int(made.number), as_one_of(made.results, tower, len(waits))
        waits[tower] = wait
        position = Position(step, begin.epoch, begin.epoch_step + step - begin.step)
        with self._state:
            now = time.perf_counter()
            seconds, self._last_time = now - self._last_time, now
            self._done[step] = StepReport(
                step, begin.epoch, False, position, results, seconds, waits, tower,
                int(made.staleness),
            )  # fmt: skip
            self._num_done += 1
            self._not_done.remove(number)
            self._state.notify_all()

    def _fail(self, error: BaseException, number: int = 0) -> None:
        """Records an error, of the batch with this number if it has one; no other is taken."""
        with self._state:
            self._error = self._error or error
            self._failed |= {number} & self._not_done
            self._state.notify_all()

    @property
    def _is_over(self) -> bool:
        """Whether no tower may take another batch."""
        stopped = self._is_closed or self._error is not None
        return stopped or self._is_exhausted or self._num_taken == self._limit

    def _may_go_on(self) -> bool:
        """Returns whether a tower need not wait for a pause to end, or for actions to catch up."""
        unreported = self._num_taken - self._num_reported
        is_ahead = unreported >= MOST_UNREPORTED * len(self._threads)
        return self._is_over or not (self._num_pauses or is_ahead)

    def _is_still(self) -> bool:
        """Returns whether no tower works."""
        return self._not_done <= self._failed

    def _knows(self, number: int) -> bool:
        """Returns whether an update is done, and it is known if another one follows."""
        return {number, number + 1} <= self._done.keys() or (self._is_over and self._is_still())


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


def as_number(value: Any) -> np.ndarray | None:
    """Returns a tensor's value; None stays None."""
    return None if value is None else np.asarray(value)

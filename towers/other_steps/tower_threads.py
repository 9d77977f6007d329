"""The threads of asynchronous towers in one epoch: they take batches, pause and report updates."""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from towers.batches.feed import PATIENCE, StopTraining, drop, iterator_of
from towers.batches.shards import Shard
from towers.loop.updates import Position
from towers.step.results import StepResults

MOST_UNREPORTED = 8  # Updates per tower, done or under way, by which actions may lag behind.


class TowerThreads:
    """The towers' threads in one epoch, a context manager for an iterator over their updates.

    The iterator yields pairs (`FinishedUpdate`, whether it is the epoch's last). Towers do not run
    ahead of it by more than a few updates: when they are stopped, almost all have been seen.

    Args:
        step, dataset: the step, and batches, each as a tuple of one shard.
        begin: the position before the first batch.
        limit: the largest number of batches to take, or None.

    Attributes:
        num_updates: the number of updates done; failed ones do not count.
    """

    def __init__(self, step: Any, dataset: tf.data.Dataset, begin: Position, limit: int | None):
        self.num_updates = 0
        self._step = step
        self._begin = begin
        self._limit = limit
        self._num_taken = 0
        self._num_working = 0  # Towers that have a batch and make their update.
        self._num_handed = 0  # Updates that the iterator's user is done with.
        self._most_unreported = MOST_UNREPORTED * len(step.devices)
        self._under_way: set[int] = set()  # Batches that are taken but not done.
        self._error: BaseException | None = None  # The first error of a tower or of the data.
        self._exhausted = False
        self._num_pauses = 0
        self._closed = False
        self._last_time = self._resumed = time.perf_counter()
        self._state = threading.Condition()  # Guards all attributes above.
        self._dataset = dataset.prefetch(len(step.devices))
        self._batches: Iterator[tuple[Shard, ...]] | None = None
        self._input = threading.Lock()  # Guards the two above; taken before `_state`.
        self._finished: queue.SimpleQueue[FinishedUpdate | BaseException | None] = (
            queue.SimpleQueue()
        )
        self._threads = [
            threading.Thread(target=self._work, args=(tower,), name=f"tower_{tower}", daemon=True)
            for tower in range(len(step.devices))
        ]

    def __enter__(self) -> Iterator[tuple[FinishedUpdate, bool]]:
        self._step.count_from(self._begin.step)
        for thread in self._threads:
            thread.start()
        return self._in_order()

    def close(self) -> None:
        """Lets the towers finish their updates and take no other batch."""
        with self._state:
            self._closed = True
            self._state.notify_all()

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.close()
        with self._state:
            self._state.wait_for(lambda: not self._num_working)
        deadline = time.monotonic() + PATIENCE
        for thread in self._threads:  # One that waits for the data set ends by itself later.
            thread.join(max(0.0, deadline - time.monotonic()))
        held, self._batches = [self._batches], None
        drop(held)
        if self._error is not None and kind is not None and issubclass(kind, StopTraining):
            raise self._error  # A failed training must not look like a stopped one.

    @property
    def position(self) -> Position:
        """Where the training continues: the first batch not done. Use it while no tower works."""
        begin, done = self._begin, self.num_updates
        if self._exhausted and not self._under_way:
            return Position(begin.step + done, begin.epoch + 1, 0)
        first = min(self._under_way, default=done + 1)
        return Position(begin.step + done, begin.epoch, begin.epoch_step + first - 1)

    @contextlib.contextmanager
    def pause(self) -> Iterator[None]:
        """The scope in which no tower works; raises an error of a tower or of the data."""
        with self._state:
            self._num_pauses += 1
        try:
            with self._state:
                self._state.wait_for(lambda: not self._under_way or self._error is not None)
                if self._error is not None:
                    raise self._error
            yield
        finally:
            with self._state:
                self._num_pauses -= 1
                if not self._num_pauses:
                    self._last_time = self._resumed = time.perf_counter()
                    self._state.notify_all()

    def _work(self, tower: int) -> None:
        """Runs in a tower's thread: makes updates until no batch is left."""
        try:
            while (taken := self._take()) is not None:
                number, shards, wait = taken
                try:
                    results = self._step(tower, shards, self._begin.step + number)
                    self._finish(number, tower, results, wait)
                finally:
                    self._rest()
        except BaseException as error:  # The thread that iterates raises it.
            self._fail(error)
        finally:
            self._finished.put(None)

    def _take(self) -> tuple[int, Any, float] | None:
        """Returns a batch's number, the batch and its wait in seconds; None at the end."""
        started = time.perf_counter()
        with self._input:
            number = self._next_number()
            if number is None:
                return None
            if self._batches is None:
                self._batches = iterator_of(self._dataset)
            try:
                shards = next(self._batches)
            except StopIteration:
                self._exhaust(number)
                return None
            if number == self._limit and self._is_at_end():
                self._exhaust()
            if not self._begin_work():
                return None
        return number, shards, time.perf_counter() - max(started, self._resumed)

    def _next_number(self) -> int | None:
        """Waits until a batch may be taken; returns its number, or None at the end."""
        with self._state:
            if not self._may_go_on():
                self._state.wait_for(self._may_go_on)
                self._resumed = time.perf_counter()  # It was no wait for data.
            if self._is_over:
                return None
            self._num_taken += 1
            self._under_way.add(self._num_taken)
            return self._num_taken

    def _begin_work(self) -> bool:
        """Returns whether the tower may use its batch; not if it was closed meanwhile."""
        with self._state:
            self._num_working += not self._closed
            return not self._closed

    def _rest(self) -> None:
        with self._state:
            self._num_working -= 1
            self._state.notify_all()

    def _may_go_on(self) -> bool:
        """Returns whether a tower need not wait for a pause to end, or for actions to catch up."""
        unreported = self._num_taken - self._num_handed
        return self._is_over or (not self._num_pauses and unreported < self._most_unreported)

    def _exhaust(self, number: int | None = None) -> None:
        """Records the end of the data; `number` is the batch that was requested but not found."""
        with self._state:
            self._exhausted = True
            self._under_way -= {number}
            self._state.notify_all()

    @property
    def _is_over(self) -> bool:
        stopped = self._closed or self._error is not None
        return stopped or self._exhausted or self._num_taken == self._limit

    def _is_at_end(self) -> bool:
        """Returns whether no batch follows; an error in a following batch is ignored here."""
        try:
            return self._batches is None or next(self._batches, None) is None
        except Exception:
            return False

    def _finish(self, number: int, tower: int, results: AsyncResults, wait: float) -> None:
        results = tf.nest.map_structure(as_number, results)  # Waits for the tower's device.
        with self._state:
            now = time.perf_counter()
            seconds, self._last_time = now - self._last_time, now
            self.num_updates += 1
            self._under_way.remove(number)
            self._finished.put(FinishedUpdate(tower, results, wait, seconds))
            self._state.notify_all()

    def _fail(self, error: BaseException) -> None:
        """Records an error: its batch stays not done, and no tower takes another one."""
        with self._state:
            self._error = self._error or error
            self._finished.put(error)
            self._state.notify_all()

    def _in_order(self) -> Iterator[tuple[FinishedUpdate, bool]]:
        """Yields the updates by number, each as soon as it is known whether another follows."""
        early: dict[int, FinishedUpdate] = {}
        ready: FinishedUpdate | None = None
        num_running = len(self._threads)
        number = self._begin.step + 1
        while num_running and not self._nothing_follows():
            finished = self._finished.get()
            if isinstance(finished, BaseException):
                raise finished
            if finished is None:
                num_running -= 1
                continue
            early[int(finished.results.number)] = finished
            while number in early:
                if ready is not None:
                    yield ready, False
                    with self._state:  # A tower may take another batch.
                        self._num_handed += 1
                        self._state.notify_all()
                ready, number = early.pop(number), number + 1
        if ready is not None:
            yield ready, self._exhausted

    def _nothing_follows(self) -> bool:
        """Returns whether it is closed and all updates are handed over; then no tower works."""
        if not self._closed:
            return False
        with self._state:
            self._state.wait_for(lambda: not self._finished.empty() or not self._num_working)
            return self._finished.empty()


def as_number(value: Any) -> np.ndarray | None:
    """Returns a tensor's value; None stays None."""
    return None if value is None else np.asarray(value)


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


class FinishedUpdate(NamedTuple):
    """One update that a tower's thread has finished.

    Attributes:
        tower: the tower that made it.
        results: the step's results as NumPy numbers.
        wait: the time in seconds for which the tower waited for its batch, other towers' turns
            included, pauses excluded.
        seconds: the time since the previous update of any tower, pauses excluded.
    """

    tower: int
    results: AsyncResults
    wait: float
    seconds: float

"""The threads of asynchronous towers during one epoch: which takes which batch, which waits."""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from towers.loop.updates import Position, StopTraining
from towers.step.asynchronous import AsyncStep, TowerUpdate
from towers.step.shards import Shard


class Arrival(NamedTuple):
    """One update as a tower's thread hands it over.

    Attributes:
        tower: which tower made it.
        update: what the step returned, with NumPy numbers.
        wait: seconds that the tower waited for its batch, other towers' turns included, pauses
            excluded.
        seconds: since the update before it, pauses excluded.
    """

    tower: int
    update: TowerUpdate
    wait: float
    seconds: float


class TowerThreads:
    """The towers' threads during one epoch, as an iterator of (`Arrival`, whether it is the last).

    Args:
        step: the asynchronous step.
        dataset: batches, each as one shard.
        begin: the position before the first of them.
        limit: how many batches to take at most, or None.

    Attributes:
        num_done: how many updates are done; one that failed is not.
    """

    def __init__(
        self, step: AsyncStep, dataset: tf.data.Dataset, begin: Position, limit: int | None
    ):
        self.num_done = 0
        self._step = step
        self._begin = begin
        self._limit = limit
        self._num_taken = 0
        self._under_way: set[int] = set()  # Batches that are taken and not done.
        self._error: BaseException | None = None  # The first of a tower or of the data.
        self._exhausted = False
        self._num_pauses = 0
        self._closed = False
        self._last_time = self._resumed = time.perf_counter()
        self._state = threading.Condition()  # Guards what is above.
        self._dataset = dataset.prefetch(len(step.devices))
        self._batches: Iterator[tuple[Shard, ...]] | None = None
        self._input = threading.Lock()  # Guards the two above; taken before `_state`.
        self._arrivals: queue.SimpleQueue[Arrival | BaseException | None] = queue.SimpleQueue()
        self._threads = [
            threading.Thread(target=self._work, args=(tower,), name=f"tower_{tower}", daemon=True)
            for tower in range(len(step.devices))
        ]

    def __enter__(self) -> Iterator[tuple[Arrival, bool]]:
        self._step.prepare()
        self._step.count_from(self._begin.step)
        for thread in self._threads:
            thread.start()
        return self._in_order()

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        with self._state:
            self._closed = True
            self._state.notify_all()
        for thread in self._threads:
            thread.join()
        if self._error is not None and kind is not None and issubclass(kind, StopTraining):
            raise self._error  # A training that failed must not look like one that was stopped.

    @property
    def position(self) -> Position:
        """Where the training goes on, while no tower works: at the first batch not done."""
        begin, done = self._begin, self.num_done
        if self._exhausted and not self._under_way:
            return Position(begin.step + done, begin.epoch + 1, 0)
        first = min(self._under_way, default=done + 1)
        return Position(begin.step + done, begin.epoch, begin.epoch_step + first - 1)

    @contextlib.contextmanager
    def pause(self) -> Iterator[None]:
        """The scope in which no tower works; raises the error of a tower or of the data."""
        with self._state:
            self._num_pauses += 1
        try:
            with self._state:
                self._state.wait_for(lambda: not self._under_way or self._error is not None)
                if self._error is not None:
                    raise self._error
            yield
        finally:
            self._resume()

    def _resume(self) -> None:
        with self._state:
            self._num_pauses -= 1
            if not self._num_pauses:
                self._last_time = self._resumed = time.perf_counter()
                self._state.notify_all()

    def _work(self, tower: int) -> None:
        """What the thread of a tower does: batch after batch, until there is none."""
        try:
            while (taken := self._take()) is not None:
                number, shards, wait = taken
                update = self._step(tower, shards, self._begin.step + number)
                self._hand_over(number, tower, update, wait)
        except BaseException as error:  # Whatever it is, the thread that waits raises it.
            self._fail(error)
        finally:
            self._arrivals.put(None)

    def _take(self) -> tuple[int, Any, float] | None:
        """Returns the number of a batch, the batch and how long it took, or None at the end."""
        started = time.perf_counter()
        with self._input:
            number = self._next_number()
            if number is None:
                return None
            if self._batches is None:
                self._batches = iter(self._dataset)
            try:
                shards = next(self._batches)
            except StopIteration:
                self._exhaust(number)
                return None
            if number == self._limit and self._is_at_end():
                self._exhaust()
        return number, shards, time.perf_counter() - max(started, self._resumed)

    def _next_number(self) -> int | None:
        """Returns the number of the batch to take, after a pause; None if there is to be none."""
        with self._state:
            self._state.wait_for(lambda: not self._num_pauses or self._is_over)
            if self._is_over:
                return None
            self._num_taken += 1
            self._under_way.add(self._num_taken)
            return self._num_taken

    @property
    def _is_over(self) -> bool:
        stopped = self._closed or self._error is not None
        return stopped or self._exhausted or self._num_taken == self._limit

    def _is_at_end(self) -> bool:
        """Returns whether no batch follows. That one has an error is not the last one's fault."""
        try:
            return self._batches is None or next(self._batches, None) is None
        except Exception:
            return False

    def _exhaust(self, number: int | None = None) -> None:
        """Notes that the data ended, where a batch of this number would have been if any."""
        with self._state:
            self._exhausted = True
            self._under_way -= {number}
            self._state.notify_all()

    def _hand_over(self, number: int, tower: int, update: TowerUpdate, wait: float) -> None:
        update = tf.nest.map_structure(np.asarray, update)  # Waits for the tower's device.
        with self._state:
            now = time.perf_counter()
            seconds, self._last_time = now - self._last_time, now
            self.num_done += 1
            self._under_way.remove(number)
            self._arrivals.put(Arrival(tower, update, wait, seconds))
            self._state.notify_all()

    def _fail(self, error: BaseException) -> None:
        """Notes an error: its batch is never done, and no tower takes another one."""
        with self._state:
            self._error = self._error or error
            self._arrivals.put(error)
            self._state.notify_all()

    def _in_order(self) -> Iterator[tuple[Arrival, bool]]:
        """Yields the updates by their numbers, each when it is known whether another follows."""
        early: dict[int, Arrival] = {}
        ready: Arrival | None = None
        at_work = len(self._threads)
        number = self._begin.step + 1
        while at_work:
            arrival = self._arrivals.get()
            if isinstance(arrival, BaseException):
                raise arrival
            if arrival is None:
                at_work -= 1
                continue
            early[int(arrival.update.number)] = arrival
            while number in early:
                if ready is not None:
                    yield ready, False
                ready, number = early.pop(number), number + 1
        if ready is not None:
            yield ready, self._exhausted

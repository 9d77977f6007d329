"""The loop of asynchronous towers: a thread for each, updates reported in the order they came."""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, cast

import numpy as np
import tensorflow as tf

from towers.asynchronous import AsyncStep, Update
from towers.inputs import Batches, split
from towers.results import StepResults, TowerResults
from towers.trainer import Action, Position, StepReport, StopTraining, Trainer


class AsyncTrainer(Trainer):
    """The training loop of a step that `build_async_step` returned.

    It takes the same actions and the same data as `Trainer` and reports every update. The towers
    go on while actions run; `still()` makes them pause for one that looks at the variables. They
    meet at the end of each epoch.

    Args:
        step: what `build_async_step` returned.
        batches, actions, position: as in `Trainer`.

    Attributes:
        position: where the training goes on: all batches before it, and no others, have been
            applied; it is right within `still()` and after `train()`. After an error no batch
            before it is missing, but some after it may have been applied.
    """

    _train_step: Any

    def __init__(
        self,
        step: AsyncStep,
        batches: Batches,
        actions: Sequence[Action] = (),
        *,
        position: Position | None = None,
    ):
        super().__init__(cast(Any, step), batches, actions, position=position or Position())
        self._at_work: TowersAtWork | None = None
        self._latest: TowerResults | None = None

    @contextlib.contextmanager
    def still(self) -> Iterator[None]:
        """The scope in which no tower reads or writes: updates under way are done before it.

        Scopes may be nested. If a tower or the data has failed, its error is raised here.
        """
        if self._at_work is None:
            yield
            return
        with self._at_work.pause():
            self.position = self._at_work.position
            yield

    def rehearse(self) -> None:
        """Runs every tower once on a first batch of the epoch and changes nothing.

        An update is that of one tower; so all of them are seen, such as where their ops run.
        """
        dataset = split(self._batches(self.position.epoch, 0), 1)
        for shards in dataset.take(1):
            self._train_step.rehearse(shards)

    def _train_epoch(self, steps: int | None) -> None:
        begin = self.position
        dataset = split(self._batches(begin.epoch, begin.epoch_step), 1)
        limit = None if steps is None else steps - begin.step
        self._at_work = TowersAtWork(self._train_step, dataset, begin, limit)
        try:
            with self._at_work as updates:
                for arrival, is_last in updates:
                    self._act(self._report(arrival, begin, is_last))
        finally:
            self.position, num_updates = self._at_work.position, self._at_work.num_done
            self._at_work = None
        if not num_updates and self.position == Position(begin.step, begin.epoch + 1, 0):
            self.position = begin
            self._end_empty_epoch()

    def _report(self, arrival: Arrival, begin: Position, is_last: bool) -> StepReport:
        update, tower, waits = arrival.update, arrival.tower, np.zeros(self._num_towers)
        waits[tower] = arrival.wait
        results = self._results(tower, update)
        self._check_finite()
        step = int(update.number)
        self._unchecked, self._unchecked_tower = (step, results), tower
        done = step - begin.step
        position = Position(step, begin.epoch, begin.epoch_step + done)
        if is_last:
            position = Position(step, begin.epoch + 1, 0)
        return StepReport(
            step=step,
            epoch=begin.epoch,
            epoch_end=is_last,
            position=position,
            results=results,
            seconds=arrival.seconds,
            waits=waits.tolist(),
            tower=tower,
            staleness=int(update.staleness),
        )

    @property
    def _num_towers(self) -> int:
        return len(self._train_step.devices)

    def _results(self, tower: int, update: Update) -> StepResults:
        """Returns an update's results; of the other towers, what they had in their latest."""
        if self._latest is None:
            nothing = np.full(self._num_towers, np.nan)
            metrics = dict.fromkeys(update.metrics, nothing)
            self._latest = TowerResults(nothing, nothing, metrics, nothing)
        latest, only = self._latest, np.zeros(self._num_towers)
        only[tower] = update.weight
        self._latest = TowerResults(
            loss=replaced(latest.loss, tower, update.loss),
            weight=only,
            metrics={
                name: replaced(latest.metrics[name], tower, value)
                for name, value in update.metrics.items()
            },
            gradient_norm=replaced(latest.gradient_norm, tower, update.gradient_norm),
        )
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


def replaced(values: np.ndarray, index: int, value: Any) -> np.ndarray:
    """Returns a copy of a vector with one number replaced."""
    copy = np.array(values)
    copy[index] = value
    return copy


class Arrival(NamedTuple):
    """One update as a tower's thread hands it over.

    Attributes:
        tower: whose it is.
        update: what the step returned, with NumPy numbers.
        wait: seconds that the tower waited for its batch, other towers' turns included, pauses
            excluded.
        seconds: since the update before it, pauses excluded.
    """

    tower: int
    update: Update
    wait: float
    seconds: float


class TowersAtWork:
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
        self._batches: Iterator | None = None
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
        except BaseException as error:  # Whatever it is, it belongs to the thread that waits.
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
            return next(cast(Iterator, self._batches), None) is None
        except Exception:
            return False

    def _exhaust(self, number: int | None = None) -> None:
        """Notes that the data ended, where a batch of this number would have been if any."""
        with self._state:
            self._exhausted = True
            self._under_way -= {number}
            self._state.notify_all()

    def _hand_over(self, number: int, tower: int, update: Update, wait: float) -> None:
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

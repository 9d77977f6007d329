"""Waiting questions: those that are decoded alike are answered together."""

from __future__ import annotations

import collections
import contextlib
import threading
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Future
from typing import Any, NamedTuple

from towers.ground.private_apis import CancellationManager, CancellationManagerContext

Answers = Callable[[Sequence[Any]], Sequence[Any]]


class FullError(Exception):
    """As many questions as may wait are waiting."""


class ClosedError(Exception):
    """The batcher takes no more questions."""


class Job(NamedTuple):
    """A question that waits.

    Attributes:
        question: what `answer` is given.
        group: questions with equal groups are answered together.
        rows: how many answers of a batch it takes.
        future: gets the answer.
    """

    question: Any
    group: Hashable
    rows: int
    future: Future[Any]


class Batcher(contextlib.AbstractContextManager["Batcher"]):
    """A thread that answers waiting questions, the oldest with all that are in its group.

    While one batch is decoded the next one gathers, so nothing waits for a batch to fill. A batch
    whose questions are all cancelled ends at once, in the middle of TensorFlow's loop. Leave the
    batcher's scope and what waits is answered before the thread ends; it takes no more questions.

    Args:
        answer: returns an answer to each question of a batch; only the thread calls it.
        max_batch: rows of a batch; a question with more rows is a batch of its own.
        max_waiting: questions that may wait.
    """

    def __init__(self, answer: Answers, *, max_batch: int, max_waiting: int):
        self._answer = answer
        self._max_batch = max_batch
        self._max_waiting = max_waiting
        self._waiting: collections.deque[Job] = collections.deque()
        self._changed = threading.Condition()
        self._closed = False
        self._thread = threading.Thread(target=self._work, name="batcher", daemon=True)
        self._thread.start()

    def submit(self, question: Any, group: Hashable, rows: int = 1) -> Future[Any]:
        """Returns the future of an answer; cancel it, and the question is forgotten.

        Raises:
            FullError: too many wait.
            ClosedError: after the scope's end.
        """
        job = Job(question, group, rows, Future())
        with self._changed:
            if self._closed:
                raise ClosedError
            if self.num_waiting() >= self._max_waiting:
                raise FullError
            self._waiting.append(job)
            self._changed.notify()
        return job.future

    def num_waiting(self) -> int:
        """Returns how many questions wait, without those that were cancelled."""
        with self._changed:
            self._waiting = collections.deque(
                job for job in self._waiting if not job.future.cancelled()
            )
            return len(self._waiting)

    def __exit__(self, *_: object) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join()

    def _work(self) -> None:
        while batch := self._next_batch():
            results = self._results(batch)
            for job, result in zip(batch, results, strict=True):
                if not job.future.set_running_or_notify_cancel():
                    continue
                if isinstance(result, Exception):  # The clients are told; the thread goes on.
                    job.future.set_exception(result)
                else:
                    job.future.set_result(result)

    def _results(self, batch: Sequence[Job]) -> Sequence[Any]:
        """Returns the answer to each question, or for each the error of all of them."""
        manager = CancellationManager()

        def stop_if_all_left(_: Future[Any]) -> None:
            if all(job.future.cancelled() for job in batch):
                manager.start_cancel()

        for job in batch:
            job.future.add_done_callback(stop_if_all_left)
        try:
            with CancellationManagerContext(manager):
                answers = self._answer([job.question for job in batch])
            return [answer for _, answer in zip(batch, answers, strict=True)]
        except Exception as error:
            return [error] * len(batch)

    def _next_batch(self) -> list[Job]:
        """Returns the next questions to answer together; none after the last one."""
        with self._changed:
            while True:
                self._changed.wait_for(lambda: self._waiting or self._closed)
                chosen = self._choose()
                batch = [job for job in chosen if not job.future.cancelled()]
                if batch or (self._closed and not self._waiting):
                    return batch

    def _choose(self) -> list[Job]:
        """Takes the oldest question and those of its group that fit, in their order."""
        chosen: list[Job] = []
        others: list[Job] = []
        rows = 0
        for job in self._waiting:
            if not chosen or (job.group == chosen[0].group and rows + job.rows <= self._max_batch):
                chosen.append(job)
                rows += job.rows
            else:
                others.append(job)
        self._waiting = collections.deque(others)
        return chosen

"""The loop of asynchronous towers: updates are reported in the order in which they came."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any, cast

import numpy as np

from towers.loop.inputs import Batches, split
from towers.loop.tower_threads import Arrival, TowersAtWork
from towers.loop.trainer import Action, Position, StepReport, Trainer
from towers.step.asynchronous import AsyncStep, Update
from towers.step.results import StepResults, TowerResults


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

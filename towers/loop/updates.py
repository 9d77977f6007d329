"""Updates, reports and positions: the interface between a trainer and its way of training."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import tensorflow as tf

from towers.saving.checkpoint_files import Groups
from towers.step.results import StepResults


@dataclasses.dataclass(frozen=True)
class Position:
    """The progress of a training: all that a checkpoint saves of the loop and of the data.

    Attributes:
        step: the number of steps done since the beginning of the run.
        epoch: the epoch of the next step, from 0.
        epoch_step: the number of steps done in that epoch; its data continues there.
    """

    step: int = 0
    epoch: int = 0
    epoch_step: int = 0

    def after_step(self, *, epoch_end: bool) -> Position:
        """Returns the position after one more step.

        >>> Position(3, 0, 3).after_step(epoch_end=True)
        Position(step=4, epoch=1, epoch_step=0)
        """
        if epoch_end:
            return Position(self.step + 1, self.epoch + 1, 0)
        return Position(self.step + 1, self.epoch, self.epoch_step + 1)


@dataclasses.dataclass(frozen=True)
class StepReport:
    """The report of one update, the argument of every action.

    Attributes:
        step: the number of the update, from 1.
        epoch: the number of its epoch, from 0.
        epoch_end: whether it was the last update of its epoch.
        position: where the training continues after it. For an asynchronous update this is only a
            count; to save, use `Trainer.position` within `Trainer.paused()`.
        results: the update's results; reading one waits for the devices.
        seconds: the time of the update in seconds, the longest of `waits` included, actions
            excluded.
        waits: for each tower, the time in seconds that its shard was waited for.
        tower: the tower of an asynchronous update; None if all towers took part.
        staleness: for an asynchronous update, how many updates of other towers came between its
            tower's read of the variables and its write.
    """

    step: int
    epoch: int
    epoch_end: bool
    position: Position
    results: StepResults
    seconds: float
    waits: Sequence[float]
    tower: int | None = None
    staleness: int = 0


Action = Callable[[StepReport], Any]
Report = Callable[[StepReport], None]


class Updates(Protocol):
    """The updates that a `Trainer` makes: synchronous, asynchronous, or your own.

    Attributes:
        position: where the training continues; a trainer that resumes sets it.
    """

    position: Position

    @property
    def num_processes(self) -> int:
        """The number of processes that train this model."""

    def run_epoch(self, steps: int | None, report: Report) -> None:
        """Makes the updates from `position` to the end of its epoch and reports each.

        Args:
            steps: the number of the last step to make, counted from the beginning of the run, or
                None.
            report: called with a `StepReport` after each update. An exception that it raises ends
                the epoch and passes through; `position` is up to date then.
        """

    def finish(self) -> None:
        """Ends the training; raises a pending error of the last update."""

    def paused(self) -> contextlib.AbstractContextManager[None]:
        """The scope in which no variable changes and `position` is up to date, to save them."""

    def averaged(self) -> contextlib.AbstractContextManager[None]:
        """The scope in which the variables hold the optimizer's averages, if it keeps any.

        Afterwards they hold their own values again, with which the training goes on. It is entered
        while paused. At the end of a training it is entered and not left: no generator, which
        Python leaves when it throws it away.
        """

    def dry_run(self) -> None:
        """Runs the towers that the first update leaves out; no variable changes."""

    def groups(self) -> Groups:
        """Returns the variables that a checkpoint saves, by group name."""

    def check_copies(self) -> None:
        """Raises RuntimeError unless all copies of the variables are bit-identical."""

    @property
    def graph(self) -> tf.Graph | None:
        """The step's graph, or None if it is only known once it has run."""


def end_empty_epoch(position: Position) -> Position:
    """Returns the position after an epoch that had no batch left.

    Raises:
        ValueError: the epoch has no data at all.
    """
    if position.epoch_step == 0:
        raise ValueError(
            "No training step can run: the data set has no batch in epoch "
            f"{position.epoch}. Is it empty, or smaller than one batch with the remainder "
            "dropped?"
        )
    return Position(position.step, position.epoch + 1, 0)

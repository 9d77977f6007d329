"""What a trainer trains with: the updates of an epoch, reported one by one."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import tensorflow as tf

from towers.run.checkpoint_files import Groups
from towers.step.results import StepResults


@dataclasses.dataclass(frozen=True)
class Position:
    """How far a training is: what a checkpoint keeps of the loop and of the data.

    Attributes:
        step: steps done since the beginning.
        epoch: the epoch of the next step, from 0.
        epoch_step: steps done in that epoch, which is where its data goes on.
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
    """What every action is given after every update.

    Attributes:
        step: number of the update, from 1.
        epoch: number of its epoch, from 0.
        epoch_end: whether it was the last update of its epoch.
        position: where the training goes on after it. An asynchronous update only counts here;
            an action that saves asks the trainer, within `Trainer.paused()`.
        results: the update's results; reading one waits for the devices.
        seconds: since the update before it, the longest of `waits` included, actions excluded.
        waits: how long each tower's shard was waited for, in seconds.
        tower: the tower of an asynchronous update; None if all towers took part.
        staleness: of an asynchronous update, how many others came between its tower's reading
            of the variables and its writing.
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


class StopTraining(Exception):  # noqa: N818 - it is a request, as StopIteration is.
    """Raised by an action to end the training after this step; the message says why."""


class Updates(Protocol):
    """A way of training a model, for `Trainer`: synchronous, asynchronous, or one of your own.

    Attributes:
        position: where the training goes on; a trainer that resumes sets it.
    """

    position: Position

    def run_epoch(self, steps: int | None, report: Report) -> None:
        """Makes the updates from `position` to the end of its epoch, and reports each.

        Args:
            steps: where to end at the latest, counted from the beginning of the run, or None.
            report: is given a `StepReport` after each update. Whatever it raises ends the epoch
                and is raised again; `position` is right then.
        """

    def finish(self) -> None:
        """Ends the training: raises what the last update has not told yet."""

    def paused(self) -> contextlib.AbstractContextManager[None]:
        """The scope in which no variable changes and `position` is right, such as for a save."""

    def dry_run(self) -> None:
        """Runs what the first update leaves out, and changes nothing."""

    def groups(self) -> Groups:
        """Returns the variables that a checkpoint keeps, by the name of their group."""

    def check_copies(self) -> None:
        """Raises RuntimeError unless all copies of the variables are the same to the last bit."""

    @property
    def graph(self) -> tf.Graph | None:
        """The graph that runs, or None if there is none before it runs."""


def end_empty_epoch(position: Position) -> Position:
    """Returns the position after an epoch whose data ended at once.

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

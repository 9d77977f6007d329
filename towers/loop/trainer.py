"""The loop: takes shards, runs the step, hands a report to every action."""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import tensorflow as tf

from towers.loop.inputs import Batches, Feed, open_feed, split
from towers.step.builder import TrainStep
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


@dataclasses.dataclass(frozen=True)
class StepReport:
    """What every action is given after every step.

    Attributes:
        step: number of the step, from 1.
        epoch: number of its epoch, from 0.
        epoch_end: whether it was the last step of its epoch.
        position: where the training goes on after it. Of an asynchronous update it only counts
            the updates, which need not be those of the batches before it: a checkpoint takes
            `AsyncTrainer.position` within `still()`.
        results: the step's results; reading one waits for the devices. Of an asynchronous update
            they are its tower's; `results.towers` then holds the latest of each other tower, NaN
            before its first, with the weight 0.
        seconds: how long the step took, the longest of `waits` included, actions excluded. Of an
            asynchronous update, the time since the one before it, whichever tower's that was:
            pauses are excluded, but towers go on while actions run.
        waits: how long each tower's shard was waited for, in seconds. Of an asynchronous update,
            how long its tower waited for its batch, which may be longer than `seconds`, since
            others made updates meanwhile; 0 for the other towers.
        tower: of an asynchronous update, whose it was; None if all towers took part.
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


class StopTraining(Exception):  # noqa: N818 - it is a request, as StopIteration is.
    """Raised by an action to end the training after this step; the message says why."""


class NonFiniteGradientError(RuntimeError):
    """A gradient is NaN or infinite. That step changed no variable."""


class Trainer:
    """The training loop.

    Args:
        step: what `build_train_step` returned.
        batches: `batches(epoch, first_step) -> tf.data.Dataset` of global batches.
        actions: callables, given a `StepReport` after each step, in order.
        position: where to begin; that of a checkpoint continues its run.
        split: `split(dataset, num_towers)` that cuts global batches into shards.
        first_tower: the number, among the towers of all processes, of this one's first.

    Attributes:
        position: where the training goes on.
    """

    def __init__(
        self,
        step: TrainStep,
        batches: Batches,
        actions: Sequence[Action] = (),
        *,
        position: Position = Position(),
        split: Callable[[tf.data.Dataset, int], tf.data.Dataset] = split,
        first_tower: int = 0,
    ):
        self.position = position
        self._train_step = step
        self._batches = batches
        self._actions = list(actions)
        self._split = split
        self._first_tower = first_tower
        self._unchecked: tuple[int, StepResults] | None = None
        self._unchecked_tower: int | None = None  # Of an asynchronous update, whose it was.

    def train(self, *, epochs: int | None = None, steps: int | None = None) -> str:
        """Trains until the run has done so many epochs or steps, and returns why it ended.

        Both count from the beginning of the run, not from where this process began.
        """
        if epochs is None and steps is None:
            raise ValueError("train() needs epochs or steps. Received neither.")
        try:
            while not (reason := self._reached(epochs, steps)):
                self._train_epoch(steps)
        except StopTraining as stop:
            reason = str(stop)
        self._check_finite()
        return reason

    def rehearse(self) -> None:
        """Runs what the first update may leave out; every tower takes part in one, so nothing."""

    @contextlib.contextmanager
    def still(self) -> Iterator[None]:
        """The scope for what an action does with the variables at `position`, such as a save."""
        yield

    def _reached(self, epochs: int | None, steps: int | None) -> str:
        """Returns why the training is done, or nothing if it is not."""
        if steps is not None and self.position.step >= steps:
            return f"{self.position.step} steps done"
        if epochs is not None and self.position.epoch >= epochs:
            return f"{self.position.epoch} epochs done"
        return ""

    def _train_epoch(self, steps: int | None) -> None:
        position = self.position
        dataset = self._batches(position.epoch, position.epoch_step)
        devices = self._train_step.devices
        with open_feed(self._split(dataset, len(devices)), devices) as feed:
            if feed.exhausted():
                self._end_empty_epoch()
            for shards in feed:
                report = self._run_step(shards, feed)
                self._act(report)
                if steps is not None and report.step >= steps:
                    return

    def _run_step(self, shards: tuple, feed: Feed) -> StepReport:
        before, waits = self.position, list(feed.waits)
        step = before.step + 1
        started = time.perf_counter()
        results = self._train_step(shards, step)
        self._check_finite()  # The step before this one: it is done, so nothing is waited for.
        self._unchecked = (step, results)
        seconds = max(waits) + time.perf_counter() - started
        epoch_end = feed.exhausted()
        next_epoch = Position(step, before.epoch + 1, 0)
        same_epoch = Position(step, before.epoch, before.epoch_step + 1)
        self.position = next_epoch if epoch_end else same_epoch
        return StepReport(step, before.epoch, epoch_end, self.position, results, seconds, waits)

    def _act(self, report: StepReport) -> None:
        """Runs every action, also when one of them asks to stop."""
        stop: StopTraining | None = None
        for action in self._actions:
            try:
                action(report)
            except StopTraining as request:
                stop = stop or request
        if stop is not None:
            raise stop

    def _end_empty_epoch(self) -> None:
        position = self.position
        if position.epoch_step == 0:
            raise ValueError(
                "No training step can run: the data set has no batch in epoch "
                f"{position.epoch}. Is it empty, or smaller than one batch with the remainder "
                "dropped?"
            )
        self.position = Position(position.step, position.epoch + 1, 0)

    def _check_finite(self) -> None:
        """Raises unless the last unchecked step had a finite gradient, or could rescale it."""
        if self._unchecked is None:
            return
        (step, results), self._unchecked = self._unchecked, None
        if bool(results.finite) or float(results.loss_scale) > 1:
            return
        raise NonFiniteGradientError(
            describe_non_finite(step, results, self._unchecked_tower, self._first_tower)
        )


def describe_non_finite(
    step: int, results: StepResults, tower: int | None = None, first_tower: int = 0
) -> str:
    """Returns a message that names the step and the towers whose gradient is not finite.

    Args:
        step, results: of the step.
        tower: the only one that took part, or None if all did.
        first_tower: as in `Trainer`.
    """
    norms = results.towers.gradient_norm
    culprits = [
        f"tower {first_tower + index} (loss {float(results.towers.loss[index]):.4g})"
        for index in (range(norms.shape[0]) if tower is None else [tower])
        if not bool(tf.math.is_finite(norms[index]))
    ]
    where = ", ".join(culprits) or "in no tower of this process, only in the sum over all"
    return (
        f"The gradient is not finite at step {step}: {where}. That step changed no "
        "variable. Try a lower learning rate, warm-up or clipping, and look for bad examples "
        "in the data."
    )

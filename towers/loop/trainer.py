"""The loop: makes updates, hands a report of each to every action, saves and resumes."""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Sequence
from pathlib import Path

from towers.loop.updates import Action, Position, StepReport, StopTraining, Updates
from towers.run.checkpoints import CheckpointFolder, restore


class Trainer:
    """The training loop.

    Args:
        updates: what to train with, such as `SynchronousUpdates(step, batches)`.
        actions: callables, given a `StepReport` after each update, in order.
        run_dir: a folder to keep checkpoints in, or None for none. `train` goes on from the
            newest one there, to the last bit as if it had never stopped (with
            `towers.enable_determinism`), and saves at the end of every epoch and when it ends.
    """

    def __init__(
        self,
        updates: Updates,
        actions: Sequence[Action] = (),
        *,
        run_dir: str | os.PathLike[str] | None = None,
    ):
        self._updates = updates
        self._actions = list(actions)
        self._checkpoints: CheckpointFolder | None = None
        if run_dir is not None:
            self._checkpoints = CheckpointFolder(Path(run_dir) / "checkpoints")
        self._saved_step: int | None = None  # None also before a checkpoint was looked for.

    @property
    def position(self) -> Position:
        """Where the training goes on; while updates are made, right within `paused()`."""
        return self._updates.position

    def train(self, *, epochs: int | None = None, steps: int | None = None) -> str:
        """Trains until the run has done so many epochs or steps, and returns why it ended.

        Both count from the beginning of the run, not from where this process began.

        Raises:
            ValueError: neither is given, or an epoch has no batch.
            NonFiniteGradientError: a gradient was NaN or infinite, and no loss scale could be
                lowered.
        """
        if epochs is None and steps is None:
            raise ValueError("train() needs epochs or steps. Received neither.")
        self._restore()
        try:
            while not (reason := self._reached(epochs, steps)):
                self._updates.run_epoch(steps, self._act)
        except StopTraining as stop:
            reason = str(stop)
        self._updates.finish()
        self._save()
        return reason

    def paused(self) -> contextlib.AbstractContextManager[None]:
        """The scope in which an action may look at the variables and at `position`."""
        return self._updates.paused()

    def _reached(self, epochs: int | None, steps: int | None) -> str:
        """Returns why the training is done, or nothing if it is not."""
        if steps is not None and self.position.step >= steps:
            return f"{self.position.step} steps done"
        if epochs is not None and self.position.epoch >= epochs:
            return f"{self.position.epoch} epochs done"
        return ""

    def _act(self, report: StepReport) -> None:
        """Runs every action, also when one of them asks to stop."""
        stop: StopTraining | None = None
        for action in self._actions:
            try:
                action(report)
            except StopTraining as request:
                stop = stop or request
        if self._checkpoints is not None and report.epoch_end and bool(report.results.finite):
            self._save()
        if stop is not None:
            raise stop

    def _restore(self) -> None:
        """Goes back to the newest checkpoint, once, if there is one."""
        if self._checkpoints is None or self._saved_step is not None:
            return
        checkpoint = self._checkpoints.latest()
        if checkpoint is not None:
            restore(checkpoint, self._updates.groups())
            self._updates.position = Position(**checkpoint.state["position"])
        self._saved_step = self.position.step

    def _save(self) -> None:
        """Saves where the training is, unless that is saved already."""
        if self._checkpoints is None:
            return
        with self._updates.paused():
            position = self.position
            if position.step == self._saved_step:
                return
            self._updates.check_copies()
            state = {"position": dataclasses.asdict(position)}
            self._checkpoints.save(position.step, self._updates.groups(), state)
            self._saved_step = position.step

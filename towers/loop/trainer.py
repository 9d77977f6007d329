"""The loop: makes updates, calls every action with each report, saves and resumes."""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import tensorflow as tf

from towers.batches.feed import StopTraining
from towers.batches.shards import Batches
from towers.ground.arguments import check_at_least, check_folder
from towers.ground.progress import count_of
from towers.loop.actions import check_action, reporting, restore_unreported, unreported
from towers.loop.stopping import share_stop_requests
from towers.loop.updates import Action, Position, Step, StepReport, Updates, tell, updates_of
from towers.processes.agreement import check_settings, check_variables
from towers.saving.checkpoint_folder import CheckpointFolder
from towers.saving.checkpoints import restore
from towers.saving.lock import locked_run


class Trainer:
    """The training loop.

    Args:
        step: the step to make, from `build_train_step`, `build_joint_step` or `build_async_step`.
        batches: `batches(epoch, first_step) -> tf.data.Dataset` of global batches, or a data set
            of them, as `batches_from` takes it.
        actions: callables, called in order with a `StepReport` after each update.
        run_dir: a folder for checkpoints, or None. `train` resumes from the newest checkpoint in
            it, and saves at the end of every epoch and at its own end. With
            `towers.enable_determinism`, a resumed run is bit-identical to an uninterrupted one.
            With several processes, the chief saves, and it restores for all of them.

    Several processes begin with the chief's variables and position, compare their variables after
    each epoch and at the end, and stop after the same step if an action stops one of them.

    Raises:
        ValueError: there is no step, no batch, no action or no folder.
    """

    def __init__(
        self,
        step: Any,
        batches: Batches | tf.data.Dataset,
        actions: Sequence[Action] = (),
        *,
        run_dir: str | os.PathLike[str] | None = None,
    ):
        check_step(step)
        self._begin(updates_of(step, batches), actions, run_dir)

    @classmethod
    def making(
        cls,
        updates: Updates,
        actions: Sequence[Action] = (),
        *,
        run_dir: str | os.PathLike[str] | None = None,
    ) -> Trainer:
        """Returns the trainer that makes these updates: your own, or some that begin elsewhere.

        Args:
            updates: such as `towers.steps.SynchronousUpdates(step, batches, position=...)`.
            actions, run_dir: as for the class.

        Raises:
            ValueError: these are no updates; the rest as for the class.
        """
        check_updates(updates)
        trainer = cls.__new__(cls)
        trainer._begin(updates, actions, run_dir)
        return trainer

    def _begin(
        self,
        updates: Updates,
        actions: Sequence[Action],
        run_dir: str | os.PathLike[str] | None,
    ) -> None:
        check_actions(actions)
        self._updates = updates
        self._actions = list(actions)
        self._checkpoints: CheckpointFolder | None = None
        if run_dir is not None:
            check_folder(run_dir=run_dir)
            self._checkpoints = CheckpointFolder(Path(run_dir) / "checkpoints")
        self._averages = contextlib.ExitStack()  # The averages that a training ended with.
        self._has_restored = False
        self._saved: Position | None = None  # What the newest checkpoint holds.

    @property
    def position(self) -> Position:
        """Where the training continues; during an epoch it is up to date only within `paused()`."""
        return self._updates.position

    def train(self, *, epochs: int | None = None, steps: int | None = None) -> str:
        """Trains until the run has reached this many epochs or steps; returns why it ended.

        Both count from the beginning of the run, not from the point where this process resumed.

        If the optimizer keeps averages of the weights (`use_ema=True`), the model holds these at
        the end, as after Keras's `fit`. Checkpoints hold the weights themselves, and training
        continues from those; a variable that you assign in between keeps your value.

        Args:
            epochs: the number of epochs, or None.
            steps: the number of steps, or None.

        Raises:
            ValueError: neither is given, an epoch has no batch, the newest checkpoint is not one
                of this model, another process trains in `run_dir`, or the processes differ in their
                settings or their first batches.
            NonFiniteGradientError: a gradient was NaN or infinite, and the loss scale could not
                be lowered.
        """
        if epochs is None and steps is None:
            raise ValueError("train() needs epochs or steps. Received neither.")
        given = {"epochs": epochs, "steps": steps}
        check_at_least(0, **{name: count for name, count in given.items() if count is not None})
        self.restore_weights()
        check_settings(self._updates.step.processes, given)
        try:
            with contextlib.ExitStack() as scope:
                if self._checkpoints is not None and self._updates.step.processes.is_chief:
                    scope.enter_context(locked_run(self._checkpoints.path.parent))
                    scope.enter_context(self._checkpoints)
                reason = self._train(epochs, steps)
        except OSError:
            self._saved = None  # It was to be saved, but the disk may be full.
            raise
        self._averages.enter_context(self._updates.step.averaged())
        return reason

    def _train(self, epochs: int | None, steps: int | None) -> str:
        self._restore()
        shared = share_stop_requests(self._updates.step.processes, self._actions)
        actions = [*shared, self._end_epoch]
        if self.position != self._saved:  # The caller has gone to another position since.
            self._saved = None
        try:
            while not (reason := self._reached(epochs, steps)):
                self._updates.run_epoch(steps, lambda report: tell(actions, [report]))
            for _, action in reporting(self._actions):
                action.end()
        except StopTraining as stop:
            reason = str(stop)
        self._updates.finish()
        self._save()
        return reason

    def restore_weights(self) -> None:
        """Gives the model its own weights back after a training that ended with their averages."""
        self._averages.close()

    def paused(self) -> contextlib.AbstractContextManager[None]:
        """The scope in which an action may read the variables and `position`."""
        return self._updates.paused()

    @contextlib.contextmanager
    def averaged(self) -> Iterator[None]:
        """The scope in which the model holds the averages that its optimizer keeps, if any.

        Evaluate in it, or save the best checkpoint; towers do not run meanwhile.
        """
        with self._updates.paused(), self._updates.step.averaged():
            yield

    def _restore(self) -> None:
        """Restores the newest checkpoint, if there is one, in all processes; does so only once."""
        if self._has_restored:
            return
        checkpoint = None
        if self._checkpoints is not None and self._updates.step.processes.is_chief:
            checkpoint = self._checkpoints.latest()
        if checkpoint is not None:
            position = Position(**checkpoint.state["position"])
            # Checkpoints of earlier versions have neither an order nor updates to report.
            check_order(checkpoint.state.get("order", {}), self._updates.order, position)
            restore(checkpoint, self._updates.step.groups())
            self._updates.position = position
            restore_unreported(self._actions, checkpoint.state.get("unreported", {}))
        self._updates.take_from_chief()
        self._has_restored, self._saved = True, self.position

    def _reached(self, epochs: int | None, steps: int | None) -> str:
        """Returns why the training is done, or an empty string if it is not."""
        if steps is not None and self.position.step >= steps:
            return f"{count_of(self.position.step, 'step')} done"
        if epochs is not None and self.position.epoch >= epochs:
            return f"{count_of(self.position.epoch, 'epoch')} done"
        return ""

    def _end_epoch(self, report: StepReport) -> None:
        """Saves at the end of an epoch, behind all actions."""
        if report.epoch_end and self._compares_or_saves and bool(report.results.finite):
            self._save()

    def _save(self) -> None:
        """Compares the processes and saves a checkpoint, unless this step is saved already."""
        if not self._compares_or_saves:
            return
        with self._updates.paused():
            position = self.position
            if position == self._saved:
                return
            step = self._updates.step
            step.check_copies()
            check_variables(step.processes, step.groups())
            state = {
                "position": dataclasses.asdict(position),
                "order": self._updates.order,
                "unreported": unreported(self._actions),
            }
            if self._checkpoints is not None and step.processes.is_chief:
                self._checkpoints.save(position.step, step.groups(), state, wait=False)
            self._saved = position

    @property
    def _compares_or_saves(self) -> bool:
        """Whether there is something to do at the end of an epoch; the same in all processes."""
        return self._checkpoints is not None or self._updates.step.processes.count > 1


def check_step(step: object) -> None:
    """Raises ValueError for what is no step."""
    members = [name for name in vars(Step) if not name.startswith("_")]
    missing = [name for name in members if not hasattr(step, name)]
    if missing or not callable(step):
        raise ValueError(
            "Trainer takes a step and its batches: Trainer(step, batches, actions). Received "
            f"{step!r} as the step, which lacks {', '.join(missing) or 'a call'}; build one with "
            "towers.build_train_step. For updates of your own, use towers.Trainer.making(updates, "
            "actions)."
        )


def check_updates(updates: object) -> None:
    """Raises ValueError for what are no updates."""
    if not isinstance(updates, Updates):
        raise ValueError(
            "Trainer.making takes updates, such as towers.steps.SynchronousUpdates(step, batches) "
            f"or a subclass of towers.steps.Updates. Received {updates!r}; for a step, use "
            "towers.Trainer(step, batches, actions)."
        )


def check_order(before: Mapping[str, int], now: Mapping[str, int], position: Position) -> None:
    """Raises ValueError for a position in the midst of an epoch of other batches."""
    changed = [name for name in before if name in now and before[name] != now[name]]
    if position.epoch_step and changed:
        changes = ", ".join(f"{name}: {before[name]} before, {now[name]} now" for name in changed)
        raise ValueError(
            f"The newest checkpoint is {position.epoch_step} batches into an epoch, whose batches "
            f"are others now ({changes}): rows would be left out or come twice. Go on with the "
            "same batches to the end of the epoch, or train anew in another run_dir."
        )


def check_actions(actions: Sequence[Action]) -> None:
    """Raises ValueError for an action that cannot be called."""
    is_list = isinstance(actions, (list, tuple))
    wrong = [action for action in actions if not callable(action)] if is_list else actions
    if wrong:
        raise ValueError(
            f"actions must be a list of functions that take a StepReport. Received {wrong!r}; use "
            "those in towers.actions, or write a function of the report."
        )
    for action in actions:
        check_action(action)

"""The training of a compiled model: what callbacks, logs and validation do around its updates."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
import warnings
from collections.abc import Callable, Iterator

import keras

from towers.batches.feed import StopTraining
from towers.compiled.data import Data, Shards
from towers.compiled.epoch_batches import epochs_of
from towers.compiled.evaluation import Evaluation
from towers.compiled.late_step import LateStep
from towers.compiled.limits import end_of_call
from towers.compiled.run_files import FitFiles
from towers.compiled.together import Together
from towers.compiled.tower_function import LOSS
from towers.ground.private_apis import (
    compile_loss_of,
    initial_epoch,
    pythonify_logs,
    validates_after,
)
from towers.loop.actions import with_rates
from towers.loop.rates import Rates
from towers.loop.trainer import Trainer
from towers.loop.updates import (
    Action,
    NonFiniteGradientError,
    Position,
    StepReport,
    SynchronousUpdates,
)
from towers.processes.agreement import check_variables
from towers.step.results import StepResults

SUMMARY_STEPS = 10


def train(
    updates: FitUpdates,
    begin: Position,
    epochs: int,
    files: FitFiles | None,
    *,
    quiet: bool,
) -> keras.callbacks.History:
    """Trains until an epoch, with its callbacks; returns the history.

    Args:
        updates: the updates to make.
        begin: where to begin, unless the run has a checkpoint.
        epochs: the number of the epoch.
        files: those of a run, or None.
        quiet: whether nothing is printed of where a run goes on.
    """
    model, callbacks = updates.model, updates.callbacks
    with curves(updates, files) as actions:
        run_dir = None if files is None else files.run_dir
        trainer = Trainer.making(updates, [*actions, updates.after_step], run_dir=run_dir)
        trainer.train(steps=0)  # Restores the newest checkpoint.
        if files is not None:
            open_files(files, updates, epochs, quiet)
        updates.begin(begin)
        try:
            reason = trainer.train(epochs=epochs)
            if files is not None:
                files.end(updates.position, epochs, reason)
        except NonFiniteGradientError:
            if not model.stop_training:  # Else a callback such as `TerminateOnNaN` saw it.
                raise
    callbacks.on_train_end(logs=updates.epoch_logs or None)
    # It waits for all, too: a process that leaves early looks like one that has ended.
    check_variables(updates.step.processes, updates.step.groups())
    return model.history


def open_files(files: FitFiles, updates: FitUpdates, epochs: int, quiet: bool) -> None:
    """Records a training that begins or goes on in its run directory, and says where."""
    step, position = updates.step, updates.position
    updates.after_epoch = functools.partial(files.add_epoch, graph=lambda: step.graph)
    with step.processes.chief_first():  # They may share a disk.
        files.begin(position, updates.model, step.devices, step.processes)
    tell(updates.model, position, files.run_dir, epochs, quiet)


def check_generator(data: Data, steps: int | None, epochs: int) -> None:
    """Raises ValueError for a generator that would be read as several epochs without an end."""
    if getattr(data, "is_generator", False) and steps is None and epochs > 1:
        raise ValueError(
            "A generator can be read only once, so towers.fit needs to know where an epoch ends. "
            f"Received {epochs} epochs without steps_per_epoch; pass it, or train one epoch."
        )


def tell(
    model: keras.Model,
    position: Position,
    run_dir: str | os.PathLike[str],
    epochs: int,
    quiet: bool,
) -> None:
    """Says where a run goes on that was restored, or that there is nothing left to train."""
    if position == Position():
        return
    if position.epoch >= epochs > 0:
        warnings.warn(
            f"{os.fspath(run_dir)} holds all {epochs} epochs: nothing is trained. Give more "
            "epochs to go on, or another run_dir to train anew.",
            RuntimeWarning,
            stacklevel=4,  # The caller of `fit`.
        )
    elif not quiet:
        own = "its own weights"
        if getattr(model, "optimizer", None) is not None:
            own += f" and learning rate ({float(model.optimizer.learning_rate):g})"
        print(f"{os.fspath(run_dir)}: goes on after epoch {position.epoch} with {own}")


class FitUpdates(SynchronousUpdates):
    """The updates of a compiled model, which callbacks hear of, and the validation after an epoch.

    Args:
        step: the step, which is built before the first epoch.
        model: the model.
        together: the processes that train it.
        data: the data, as shards.
        steps: the number of steps of an epoch, or None for those of a pass over the data.
        callbacks: the callbacks.
        validation: the evaluation after an epoch, or None.
        validation_freq: as in `keras.Model.fit`.

    Attributes:
        model, data, steps, callbacks: as given.
        epoch_logs: the logs of the last epoch.
        after_epoch: `after_epoch(step, epoch, logs)` is called before the callbacks, or None.
    """

    step: LateStep

    def __init__(
        self,
        step: LateStep,
        model: keras.Model,
        together: Together,
        data: Shards,
        steps: int | None,
        callbacks: keras.callbacks.CallbackList,
        validation: Evaluation | None,
        validation_freq: int | list[int],
    ):
        batches = epochs_of(data, steps, lambda: int(step.first_epoch))
        super().__init__(step, batches, split=lambda shards, _: shards)
        self.model, self.data, self.steps, self.callbacks = model, data, steps, callbacks
        self.epoch_logs: dict[str, float] = {}
        self.after_epoch: Callable[[int, int, dict[str, float]], None] | None = None
        self._together, self._may_stop_in_steps = together, together.stops_in_steps(callbacks)
        self._validation, self._frequency = validation, validation_freq
        self._number = 0  # Of the next step in its epoch.

    def begin(self, position: Position) -> None:
        """Tells data and callbacks of a training, from a position unless one was restored.

        Callbacks may change the weights or the epoch: that of the chief counts.
        """
        self.take_from_chief()
        self.data.begin()
        self.model.stop_training = False
        self.callbacks.on_train_begin()
        if self.position == Position():
            epoch = initial_epoch(self.model) or position.epoch
            self.position = Position(step=position.step, epoch=epoch)
            self.step.first_epoch.assign(epoch)
        self.take_from_chief()

    @property
    def _made_before(self) -> int:
        """As in Keras, calls begin with an epoch."""
        return self.position.epoch_step

    def run_epoch(self, steps: int | None, report: Action) -> None:
        """Makes the updates from `position` to the end of its epoch and reports each."""
        self._begin_epoch()
        self.step.build()  # As in Keras, after what callbacks set up for the first batch.
        super().run_epoch(steps, report)

    def _begin_epoch(self) -> None:
        """Tells the callbacks of an epoch, or of what is left of it, and of its first step."""
        self._number = self.position.epoch_step
        if self._number == 0:
            self.model.reset_metrics()
        self.callbacks.on_epoch_begin(self.position.epoch)
        self.callbacks.on_train_batch_begin(self._number)
        if self._validation:
            self._validation.build()  # What it cannot do is told before anything is trained.

    def after_step(self, report: StepReport) -> None:
        """Tells the callbacks of a call, and ends its epoch: the last action of the trainer."""
        if report.step != self.position.step:
            return
        callbacks, logs = self.callbacks, self.step.build().also
        self._number = end_of_call(self._number, self._per_call)
        callbacks.on_train_batch_end(self._number, logs)
        self._number += 1
        if not report.epoch_end and not self._is_stopped(epoch_end=False):
            callbacks.on_train_batch_begin(self._number)
            return
        self._end_epoch(report, pythonify_logs(logs))
        if self._is_stopped(epoch_end=True):
            raise StopTraining("a callback stopped the training")

    def _is_stopped(self, *, epoch_end: bool) -> bool:
        """Returns whether a callback has stopped the training, in any process."""
        model, together = self.model, self._together
        if together.is_several:
            if not epoch_end and not self._may_stop_in_steps:
                return False
            model.stop_training = together.is_any(bool(model.stop_training))
        return bool(model.stop_training)

    def _end_epoch(self, report: StepReport, logs: dict[str, float]) -> None:
        """Validates and tells the callbacks, before the trainer saves what they changed."""
        epoch = report.epoch
        if self._validation and validates_after(self.model, epoch, self._frequency):
            validated = self._validation.run(self.callbacks)
            logs |= {f"val_{name}": value for name, value in validated.items()}
        if self.after_epoch is not None:
            self.after_epoch(report.step, epoch, logs)
        self.callbacks.on_epoch_end(epoch, logs)
        self.epoch_logs = logs


@contextlib.contextmanager
def curves(updates: FitUpdates, files: FitFiles | None) -> Iterator[list[Action]]:
    """The scope in which an action writes metrics, and TensorBoard's curves of each tower."""
    if files is None:
        yield []
        return
    with files.curves:

        def write_losses(report: StepReport, rates: Rates) -> None:
            results = only_losses(report.results, updates.model)
            files.add_report(dataclasses.replace(report, results=results), rates)

        yield [with_rates(write_losses, steps=SUMMARY_STEPS)]


def only_losses(results: StepResults, model: keras.Model) -> StepResults:
    """Returns results whose metrics are the single losses, by Keras's names for them."""
    loss = compile_loss_of(model)
    trackers = [] if loss is None else loss.metrics
    names = {tracker.name: LOSS.format(index) for index, tracker in enumerate(trackers)}
    metrics, towers = results.metrics, results.towers
    return results._replace(
        metrics={name: metrics[key] for name, key in names.items()},
        towers=towers._replace(metrics={name: towers.metrics[key] for name, key in names.items()}),
    )

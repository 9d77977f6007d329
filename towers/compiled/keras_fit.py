"""Keras's own `fit` on towers, with data of ours; a run directory holds its epochs."""

from __future__ import annotations

import contextlib
import dataclasses
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import keras

from towers.compiled.described import described
from towers.compiled.epoch_batches import EpochData, ends_quietly
from towers.compiled.functions import TEST, TRAIN, OnTowers
from towers.compiled.own_code import OnLayers
from towers.compiled.run_files import FitFiles
from towers.devices.kernels import levels_to_caller
from towers.ground.private_apis import initial_epoch, set_initial_epoch, updates_made
from towers.loop.actions import reporting, restore_unreported, unreported
from towers.loop.updates import NonFiniteGradientError, Position, StepReport
from towers.processes.agreement import check_settings, check_variables, take_from_chief
from towers.saving.checkpoint_files import Checkpoint, Groups
from towers.saving.checkpoint_folder import CheckpointFolder
from towers.saving.checkpoints import restore
from towers.saving.lock import locked_run
from towers.step.results import StepResults


@dataclasses.dataclass
class Asked:
    """What `keras.Model.fit` takes, by its names."""

    x: Any
    y: Any
    batch_size: int | None
    epochs: int
    verbose: Any
    callbacks: Any
    validation_split: float
    validation_data: Any
    shuffle: bool | str
    class_weight: dict[int, float] | None
    sample_weight: Any
    initial_epoch: int
    steps_per_epoch: int | None
    validation_steps: int | None
    validation_batch_size: int | None
    validation_freq: int | list[int]

    def settings(self) -> dict[str, Any]:
        """Returns what must be equal in several processes; data and callbacks are looked at."""
        has_validation = self.validation_data is not None
        looked_at = ("x", "y", "sample_weight", "callbacks", "verbose")
        return vars(self) | dict.fromkeys(looked_at) | {"validation_data": has_validation}


class Run(keras.callbacks.Callback):
    """The last of the callbacks: it counts, reports and saves, and all processes agree in it.

    Args:
        model, way: the model, and how the towers run it.
        asked: the arguments, within the limits of Keras's configuration.
        files: those of a run, or None.

    Attributes:
        position: where the training is.
    """

    def __init__(
        self,
        model: keras.Model,
        way: OnTowers | OnLayers,
        asked: Asked,
        data: EpochData,
        files: FitFiles | None,
    ):
        super().__init__()
        self.position = Position()
        self._asked = asked
        self._model, self._way, self._data, self._files = model, way, data, files
        self._is_heard = [False, False]  # Whether callbacks hear of the begin and end of steps.
        self._actions = [] if files is None or not way.functions else [files.reports(model)]
        self._checkpoints: CheckpointFolder | None = None
        self._is_cut = False  # A callback has stopped the epoch.
        self._is_stopped = False  # All processes have agreed to stop.
        self._metrics: list[tuple[Any, Any]] = []  # The states of an epoch that goes on.

    def fit(self, held_out: EpochData | None) -> keras.callbacks.History:
        """Returns what Keras's `fit` returns.

        Args:
            held_out: the data of the validation; None: `validation_data` as it was given.
        """
        asked, own = self._asked, self._data
        given, verbose = asked.callbacks, asked.verbose
        if isinstance(given, keras.callbacks.CallbackList):  # It has a progress bar or none.
            given, verbose = given.callbacks, 0
        callbacks = keras.tree.flatten(given or [])
        if self._files is not None:
            check_saved(callbacks)
        self._is_heard = self._way.together.hears_steps(callbacks)
        # The slots of an optimizer have to be there for what is restored, or taken from the chief.
        is_restored = any(isinstance(one, keras.callbacks.BackupAndRestore) for one in callbacks)
        is_restored |= self._files is not None or self._way.together.is_several
        if is_restored and isinstance(self._way, OnTowers):
            self._way.make_slots()
        with (
            self._scope(),
            contextlib.closing(own),
            contextlib.closing(held_out or own),
            ends_quietly(),
        ):
            return keras.Model.fit(
                self._model, own, epochs=asked.epochs, verbose=verbose,
                callbacks=[ending(own), *callbacks, self],
                initial_epoch=self.position.epoch or asked.initial_epoch,
                steps_per_epoch=own.limit, validation_data=held_out or asked.validation_data,
                validation_batch_size=asked.validation_batch_size,
                validation_steps=held_out.limit if held_out else asked.validation_steps,
                validation_freq=asked.validation_freq,
            )  # fmt: skip

    @contextlib.contextmanager
    def _scope(self) -> Iterator[None]:
        """The scope of the training, which restores the newest checkpoint of a run."""
        with self._way.scope(), contextlib.ExitStack() as scopes:
            if self._files is not None:
                scopes.enter_context(self._files.curves)
                if self._way.together.processes.is_chief:
                    scopes.enter_context(locked_run(self._files.run_dir))
                    self._checkpoints = CheckpointFolder(self._files.run_dir / "checkpoints")
                    scopes.enter_context(self._checkpoints)
                self._go_on(self._files)
            yield

    def _go_on(self, files: FitFiles) -> None:
        """Restores the newest checkpoint, records the training, and says where it goes on."""
        way, model, processes = self._way, self._model, self._way.together.processes
        checkpoint = None if self._checkpoints is None else self._checkpoints.latest()
        if checkpoint is not None:
            if isinstance(way, OnLayers):
                way.make_slots(self._data)
            checkpoint = with_first_epoch(checkpoint)
            try:
                restore(checkpoint, way.groups())
            except ValueError as error:
                found = files.differences(model, way.devices, processes)
                raise ValueError(f"{error}{found and f' Begun otherwise: {found}.'}") from error
            self.position = Position(**checkpoint.state["position"])
            self._data.first_epoch = checkpoint.state["first_epoch"]
            restore_unreported(self._actions, checkpoint.state.get("unreported", {}))
        self._take_from_chief()
        self._data.first_step = self.position.epoch_step
        if self.position.epoch_step:
            self._keep_metrics()
        with processes.chief_first():  # They may share a disk.
            files.begin(self.position, model, way.devices, processes)
        tell(model, self.position, files.run_dir, self._asked)

    def _take_from_chief(self) -> None:
        """Takes what the chief of several processes has restored, or its callbacks have set."""
        together, place = self._way.together, [*dataclasses.astuple(self.position)]
        if together.is_several:
            take_from_chief(together.processes, self._way.groups())
            first = -1 if self._data.first_epoch is None else self._data.first_epoch
            epoch = initial_epoch(self._model) or 0
            *place, first, epoch = together.processes.of_chief([*place, first, epoch])
            self._data.first_epoch = None if first < 0 else first
            set_initial_epoch(self._model, epoch)
        self.position = Position(*place)

    def set_params(self, params: dict[str, Any]) -> None:
        """Says that the number of steps is unknown as Keras does."""
        params["steps"] = params["steps"] or None
        super().set_params(params)

    def on_train_begin(self, logs: Any = None) -> None:
        """Takes what the chief's callbacks have set, such as what `BackupAndRestore` has saved."""
        if self.position == Position():
            self.position = Position(updates_made(self._model))
        self._way.together.forget_stops()
        self._take_from_chief()

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Tells data and steps of an epoch, or of what is left of one."""
        before = self.position
        first_step = before.epoch_step if before.epoch == epoch else 0
        self.position = Position(before.step, epoch, first_step)
        self._data.begin_epoch(epoch, first_step)
        self._restore_metrics()
        for name, function in self._way.functions.items():
            function.first = before.step + 1 if name == TRAIN else 0
        self._agree_to_stop()  # Keras stops after the first batch then.

    def _keep_metrics(self) -> None:
        """Keeps the states of the metrics in an epoch that goes on."""
        states = [one for metric in self._model.metrics for one in metric.variables]
        self._metrics = [(one, one.numpy()) for one in states]

    def _restore_metrics(self) -> None:
        """Gives the metrics the states that were kept, if there are any."""
        for variable, value in self._metrics:
            variable.assign(value)
        self._metrics = []

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        """Has the step follow Keras's function."""
        if self._is_heard[0]:
            self._agree_to_stop()
        if TRAIN in self._way.functions:
            self._way.functions[TRAIN].follow()
        if batch == 0 and TEST in self._way.functions:
            self._way.functions[TEST].build()  # What it cannot do is told before the training.

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Counts and reports the updates of a call; all processes stop where one does."""
        before, made, data = self.position, self._way.made, self._data
        last = before.epoch_step + len(made)
        if not made:  # Of steps that are not ours the last call may be shorter.
            last = data.first_step + batch + 1
            last = min(last, data.num_batches or last)
        self.position = Position(before.step + last - before.epoch_step, before.epoch, last)
        if self._actions:
            for number, results in enumerate(made, 1):
                self._report(before, number, results)
        if self._is_heard[1]:
            self._agree_to_stop()
        elif self._way.together.is_several:
            asked = self._way.together.is_stopped(bool(self.model.stop_training))
            self.model.stop_training = self._is_stopped or asked
        self._is_cut = bool(self.model.stop_training)
        if self._is_cut and self._files is not None:
            self._keep_metrics()

    def _report(self, before: Position, number: int, results: StepResults) -> None:
        """Reports the update with this number, from 1, of a call."""
        function, step = self._way.functions[TRAIN], before.step + number
        position = Position(step, before.epoch, before.epoch_step + number)
        report = StepReport(
            step, before.epoch, False, position, results, function.seconds, function.waits
        )
        for action in self._actions:
            action(report)

    def on_test_begin(self, logs: Any = None) -> None:
        """Has the step of the validation follow Keras's function."""
        self._agree_to_stop()
        if TEST in self._way.functions:
            self._way.functions[TEST].follow()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Writes and saves an epoch, whether or not a callback has stopped it."""
        model, before = self.model, self.position
        if before.epoch_step == 0:
            before.after_empty_epoch()
        if self._is_whole():
            self.position = Position(before.step, epoch + 1)
        try:
            self._way.after_epoch()
            is_finite = True
        except NonFiniteGradientError:
            if not model.stop_training:  # Else a callback such as `TerminateOnNaN` saw it.
                raise
            is_finite = False
        self._agree_to_stop()
        self._way.together.check_passes(self._data.data)
        self._restore_metrics()  # A validation has begun them anew.
        if self._files is not None:
            self._files.add_epoch(before.step, epoch, logs or {}, graph=self._way.graph)
            if is_finite:
                self._files.sync()
                self._save()

    def _agree_to_stop(self) -> None:
        """Stops all processes where a callback has stopped one.

        Raises:
            ValueError: callbacks have compiled the model in some processes, or in different ways.
        """
        model, together, train = self.model, self._way.together, self._way.functions.get(TRAIN)
        is_new = train is not None and train.is_replaced
        asked, is_any_new = together.any_of(bool(model.stop_training), is_new)
        model.stop_training = self._is_stopped = asked or together.is_stopped(asked)
        if together.is_several and is_any_new:  # Else each would wait in a step of its own.
            compiled = {"compile() called by a callback": is_new}
            check_settings(together.processes, compiled | described(model))

    def _is_whole(self) -> bool:
        """Returns whether an epoch had all of its batches."""
        is_asked = self._files is not None  # It may wait for a batch.
        return not self._is_cut or (is_asked and self._data.is_at_end(self.position.epoch_step))

    def _save(self) -> None:
        """Saves all variables."""
        groups = self._way.groups()
        self._check_variables(groups)
        if self._checkpoints is None:
            return
        state = {
            "position": dataclasses.asdict(self.position),
            "first_epoch": self._data.first_epoch,
            "unreported": unreported(self._actions),
        }
        self._checkpoints.save(self.position.step, groups, state, wait=False)

    def on_train_end(self, logs: Any = None) -> None:
        """Writes how the training ended."""
        if not self.model.stop_training:
            for _, action in reporting(self._actions):
                action.end()
        if self._files is not None:
            epochs = self.position.epoch
            reason = "a callback stopped the training" if self.model.stop_training else ""
            self._files.end(self.position, self._asked.epochs, reason or f"{epochs} epochs done")
        self._check_variables(self._way.groups())

    def _check_variables(self, groups: Groups) -> None:
        """Compares what is trained; the metrics also change where one process evaluates alone."""
        trained = {name: found for name, found in groups.items() if name != "metrics"}
        check_variables(self._way.together.processes, trained)


def ending(data: EpochData) -> keras.callbacks.Callback:
    """Returns the first of the callbacks: it ends an epoch whose batches have ended.

    The others hear of no step that is not made.
    """
    return keras.callbacks.LambdaCallback(
        on_train_batch_begin=lambda batch, logs: data.begin_step(batch)
    )


def check_saved(callbacks: Sequence[keras.callbacks.Callback]) -> None:
    """Raises ValueError for one that changes what a run saves at the end of an epoch."""
    kind = keras.callbacks.SwapEMAWeights
    if any(isinstance(one, kind) and one.swap_on_epoch for one in callbacks):
        raise ValueError(
            "run_dir saves the weights with which the training goes on. Received "
            "SwapEMAWeights(swap_on_epoch=True), which puts averages in their place when an epoch "
            "ends. Leave swap_on_epoch out: validations and the trained model have the averages "
            "all the same."
        )


def with_first_epoch(checkpoint: Checkpoint) -> Checkpoint:
    """Returns a checkpoint whose state has the first epoch: version 0.2.0 had it as a variable."""
    groups = dict(checkpoint.groups)
    begin = groups.pop("begin", None)
    if begin is None:
        return checkpoint
    state = {**checkpoint.state, "first_epoch": int(begin[0].array)}
    return dataclasses.replace(checkpoint, groups=groups, state=state)


def tell(model: keras.Model, position: Position, run_dir: Path, asked: Asked) -> None:
    """Says where a run goes on that was restored, or that there is nothing left to train."""
    if position == Position():
        return
    if position.epoch >= asked.epochs > 0:
        warnings.warn(
            f"{run_dir} holds all {asked.epochs} epochs: nothing is trained. Give more "
            "epochs to go on, or another run_dir to train anew.",
            RuntimeWarning,
            stacklevel=levels_to_caller(),
        )
    elif asked.verbose != 0:
        own = "its own weights"
        if getattr(model, "optimizer", None) is not None:
            own += f" and learning rate ({float(model.optimizer.learning_rate):g})"
        print(f"{run_dir}: goes on after epoch {position.epoch} with {own}")

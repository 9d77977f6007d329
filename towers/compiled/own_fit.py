"""Keras's own `fit` with layers on towers and data of ours; a run directory holds its epochs."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator
from typing import Any

import keras
import tensorflow as tf

from towers.compiled.checks import is_overridden
from towers.compiled.epoch_batches import EpochData
from towers.compiled.epochs import tell
from towers.compiled.logs import callback_list
from towers.compiled.run_files import FitFiles
from towers.ground.private_apis import global_seed_generator
from towers.layers.calls import LayerCalls
from towers.loop.updates import Position
from towers.processes.processes import Processes
from towers.saving.checkpoint_files import Checkpoint, Groups, tensorflow_variable
from towers.saving.checkpoint_folder import CheckpointFolder
from towers.saving.checkpoints import restore
from towers.saving.lock import locked

HOLDERS = (
    keras.Layer, keras.optimizers.Optimizer, keras.losses.Loss, keras.metrics.Metric,
    keras.random.SeedGenerator, tf.Module,
)  # fmt: skip


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


def fit_own(
    model: keras.Model,
    calls: LayerCalls,
    asked: Asked,
    own: EpochData,
    held_out: EpochData | None,
    files: FitFiles | None,
) -> keras.callbacks.History:
    """Returns what Keras's `fit` returns; its layers run on towers, its data is ours.

    Args:
        model: the model.
        calls: how layers are called.
        asked: the arguments, within the limits of Keras's configuration.
        own: the data.
        held_out: that of the validation; None: `asked.validation_data` as it is, if any.
        files: those of a run, or None.
    """
    epochs = asked.epochs
    with calls.scope(), run_in(files, (model, calls), own, epochs, asked.verbose == 0) as savers:
        begin = keras.callbacks.LambdaCallback(
            on_epoch_begin=lambda number, logs: own.begin_epoch(number),
            on_train_batch_begin=lambda number, logs: own.begin_step(number),
        )
        return keras.Model.fit(
            model, own, epochs=epochs, initial_epoch=own.epoch or asked.initial_epoch,
            steps_per_epoch=own.limit, validation_freq=asked.validation_freq,
            callbacks=callback_list(
                model, asked.callbacks, asked.verbose, own.num_batches, epochs, history=True,
                more=[begin, *savers],
            ),
            **validation_of(asked, None if is_overridden(model, "evaluate") else held_out),
        )  # fmt: skip


def validation_of(asked: Asked, held_out: EpochData | None) -> dict[str, Any]:
    """Returns the arguments of Keras's `fit` that say how it validates."""
    if held_out is None:
        names = ("validation_data", "validation_batch_size", "validation_steps")
        return {name: getattr(asked, name) for name in names}
    return {"validation_data": held_out, "validation_steps": held_out.limit}


class OwnRun(keras.callbacks.Callback):
    """Saves a run after each epoch, the last of all callbacks, and writes the epoch's curves.

    Args:
        files: the metrics and the curves of the run.
        checkpoints: the checkpoints of the run.
        position: where it goes on.
        data: the data.
    """

    def __init__(
        self,
        files: FitFiles,
        checkpoints: CheckpointFolder,
        position: Position,
        data: EpochData,
    ):
        super().__init__()
        self._files, self._checkpoints, self._data = files, checkpoints, data
        self._position = position

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        """Counts the steps of an epoch, of which some may run at once."""
        before, end = self._position, batch + self.model.steps_per_execution
        number = min(end, self._data.num_batches or end)
        step = before.step + number - before.epoch_step
        self._position = Position(step, before.epoch, number)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Saves all variables."""
        self._position = Position(self._position.step, epoch + 1)
        state = {
            "position": dataclasses.asdict(self._position), "first_epoch": self._data.first_epoch
        }  # fmt: skip
        self._files.add_epoch(self._position.step, epoch, logs or {})
        self._checkpoints.save(self._position.step, groups_of(self.model), state, wait=False)

    def on_train_end(self, logs: Any = None) -> None:
        """Writes how the training ended."""
        epochs = self._position.epoch
        reason = "a callback stopped the training" if self.model.stop_training else ""
        self._files.end(self._position, self.params["epochs"], reason or f"{epochs} epochs done")


@contextlib.contextmanager
def run_in(
    files: FitFiles | None,
    setting: tuple[keras.Model, LayerCalls],
    data: EpochData,
    epochs: int,
    quiet: bool,
) -> Iterator[list[keras.callbacks.Callback]]:
    """The scope of a run: it restores the newest checkpoint, and yields what saves the next ones.

    Args:
        files: those of the run, or None.
        setting: the model, and how its layers are called.
        data: the data; it hears from which epoch the run goes on.
        epochs: the number of the epoch at which it ends.
        quiet: whether nothing is printed of where it goes on.
    """
    if files is None:
        yield []
        return
    model, calls = setting
    checkpoints, position = CheckpointFolder(files.run_dir / "checkpoints"), Position()
    with locked(files.run_dir), files.curves, checkpoints:
        checkpoint = checkpoints.latest()
        if checkpoint is not None:
            position = go_on(checkpoint, model, data)
        files.begin(position, model, calls.devices, Processes())
        tell(model, position, files.run_dir, epochs, quiet)
        yield [OwnRun(files, checkpoints, position, data)]


def go_on(checkpoint: Checkpoint, model: keras.Model, data: EpochData) -> Position:
    """Restores all variables of a run, and returns where it goes on.

    One step before makes those that the first step of a training makes, such as the slots of
    optimizers. It asks the layers, too, so that the next step runs as it would have run.
    """
    model.make_train_function()
    batch = tf.data.Dataset.from_tensors(data.data.first_batch())
    model.train_function(iter(batch))
    restore(checkpoint, groups_of(model))
    position = Position(**checkpoint.state["position"])
    data.epoch, data.first_epoch = position.epoch, checkpoint.state["first_epoch"]
    return position


def groups_of(model: keras.Model) -> Groups:
    """Returns all variables that training may change, by group name: wherever a model holds them.

    That is in attributes of it, of its layers, optimizers, losses, metrics and modules, and in
    lists and dicts there; and the state of what `keras.random` draws without a seed.
    """
    groups: dict[str, dict[int, Any]] = {"variables": {}, "optimizer": {}}
    seen: set[int] = set()

    def visit(value: Any, group: str) -> None:
        if isinstance(value, (keras.Variable, tf.Variable)):
            stored = tensorflow_variable(value)
            is_number = stored.dtype not in (tf.string, tf.resource)
            if is_number and all(id(stored) not in found for found in groups.values()):
                groups[group][id(stored)] = value
        elif isinstance(value, (dict, list, tuple, *HOLDERS)) and id(value) not in seen:
            seen.add(id(value))
            group = "optimizer" if isinstance(value, keras.optimizers.Optimizer) else group
            is_holder = isinstance(value, HOLDERS)
            parts = vars(value) if is_holder else value
            for part in parts.values() if isinstance(parts, dict) else parts:
                visit(part, group)

    for variable in model.variables:
        visit(variable, "variables")
    visit([model, global_seed_generator()], "variables")
    return {name: list(found.values()) for name, found in groups.items()}

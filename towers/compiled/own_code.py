"""Keras's own `fit`, `evaluate` and `predict`, which run as they are with layers on towers."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

from towers.compiled.epoch_batches import EpochData
from towers.compiled.kept import kept
from towers.compiled.together import Together
from towers.ground.arguments import check_choice
from towers.ground.private_apis import global_seed_generator
from towers.layers.calls import REPEATED_ROWS, LayerCalls
from towers.processes.processes import Processes
from towers.saving.checkpoint_files import Groups, tensorflow_variable
from towers.step.options import StepOptions
from towers.step.results import StepResults

HOLDERS = (
    keras.Layer, keras.optimizers.Optimizer, keras.losses.Loss, keras.metrics.Metric,
    keras.random.SeedGenerator, tf.Module,
)  # fmt: skip
INSTEAD = {
    "parameters": "Leave it out: the variables stay where they were made.",
    "exchange": "Leave it out: there are no copies of the variables.",
    "clip_norm": "Set global_clipnorm on your optimizers, which clip the gradient of the batch.",
    "accumulate": "Set gradient_accumulation_steps on your optimizers, and a smaller batch_size.",
    "run_dir": "Use keras.callbacks.BackupAndRestore: only the model knows what its epochs are.",
}


def layer_calls(
    model: keras.Model,
    devices: Sequence[str],
    repeated_rows: str = "sum",
    *,
    quiet: bool,
    trains: bool = False,
) -> LayerCalls:
    """Returns how the layers of a model are called on towers, the same until `compile`."""
    check_choice("repeated_rows", repeated_rows, REPEATED_ROWS)
    key = ("layers", tuple(devices), repeated_rows)
    make = functools.partial(LayerCalls, devices, repeated_rows, trains=trains, owner=model)
    calls = kept(model, key, make)
    calls.told.quiet = quiet or len(devices) == 1
    calls.trains |= trains
    return calls


def call_own(model: keras.Model, name: str, calls: LayerCalls, **arguments: Any) -> Any:
    """Returns what a method of the model returns, given the arguments that are no defaults."""
    defaults = inspect.signature(getattr(keras.Model, name)).parameters
    given = {
        key: value for key, value in arguments.items() if not is_same(value, defaults[key].default)
    }
    with calls.scope():
        return getattr(model, name)(**given)


def is_same(value: Any, default: Any) -> bool:
    """Returns whether an argument is its default; arrays are not compared."""
    return value is default or (isinstance(value, (bool, int, float, str)) and value == default)


def check_no_options(
    reason: object, parameters: str, exchange: str, options: StepOptions, run_dir: Any = None
) -> None:
    """Raises ValueError for options that only the towers' own step has, and says what to do.

    Args:
        reason: why it does not serve, the end of a sentence.
        run_dir: None if there may be one.
    """
    asked = {
        "parameters": parameters == "replicated", "exchange": exchange != "packs",
        "clip_norm": options.clip_norm is not None, "accumulate": options.accumulate != 1,
        "run_dir": run_dir is not None,
    }  # fmt: skip
    for name in (name for name, is_asked in asked.items() if is_asked):
        raise ValueError(f"{name} has no effect here, since {reason}. {INSTEAD[name]}")


class OnLayers:
    """A compiled model whose steps are Keras's own or the user's; the towers run its layers.

    Attributes:
        devices, together, functions, made, graph: as those of `OnTowers`; no step is known.
    """

    graph = None

    def __init__(self, model: keras.Model, calls: LayerCalls):
        self.devices, self.together = calls.devices, Together(Processes())
        self.functions: dict[str, Any] = {}
        self.made: Sequence[StepResults] = ()
        self.scope = calls.scope
        self._model = model

    def groups(self) -> Groups:
        """Returns the variables that a checkpoint saves, by group name."""
        return groups_of(self._model)

    def make_slots(self, data: EpochData) -> None:
        """Makes what the first step of a training makes, such as the slots of optimizers.

        It is one step. It asks the layers, too, so that the next step runs as it would have run.
        """
        self._model.make_train_function()
        batch = tf.data.Dataset.from_tensors(data.data.first_batch())
        self._model.train_function(iter(batch))

    def after_epoch(self) -> None:
        """Hears that an epoch is done."""


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

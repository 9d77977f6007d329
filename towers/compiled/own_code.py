"""Keras's own `fit`, `evaluate` and `predict`, which run as they are with layers on towers."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Sequence
from typing import Any

import keras

from towers.compiled.kept import kept
from towers.ground.arguments import check_choice
from towers.layers.calls import REPEATED_ROWS, LayerCalls
from towers.step.options import StepOptions

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
        parameters, exchange, options: as asked for.
        run_dir: None if there may be one.
    """
    asked = {
        "parameters": parameters == "replicated", "exchange": exchange != "packs",
        "clip_norm": options.clip_norm is not None, "accumulate": options.accumulate != 1,
        "run_dir": run_dir is not None,
    }  # fmt: skip
    for name in (name for name, is_asked in asked.items() if is_asked):
        raise ValueError(f"{name} has no effect here, since {reason}. {INSTEAD[name]}")

"""A model's own `fit`, `evaluate` or `predict`, which runs as it is with its layers on towers."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

import keras

from towers.compiled.kept import kept
from towers.layers.calls import LayerCalls


def call_own(
    model: keras.Model,
    name: str,
    devices: Sequence[str],
    reason: object = None,
    repeated_rows: str = "sum",
    **arguments: Any,
) -> Any:
    """Returns what a method of the model returns; its layers run on the towers.

    Args:
        model: the model.
        name: the method's name.
        devices: the towers' devices.
        reason: why the towers' own step does not serve, the end of a sentence; None: none would.
        repeated_rows: as in `towers.layers_on`.
        arguments: as Keras's method takes them; those that are its defaults are left out.
    """
    defaults = inspect.signature(getattr(keras.Model, name)).parameters
    given = {
        key: value for key, value in arguments.items() if not is_same(value, defaults[key].default)
    }
    quiet = arguments["verbose"] == 0
    if reason is not None and not quiet and len(devices) > 1:
        print(f"{model.name}: the towers run layers only, since {reason}.")
    key = ("layers", tuple(devices), repeated_rows)
    calls = kept(model, key, lambda: LayerCalls(devices, repeated_rows))
    calls.quiet = quiet or len(devices) == 1
    with calls.scope():
        return getattr(model, name)(**given)


def is_same(value: Any, default: Any) -> bool:
    """Returns whether an argument is its default; arrays are not compared."""
    return value is default or (isinstance(value, (bool, int, float, str)) and value == default)


def check_no_options(
    reason: object, parameters: str, exchange: str, clip_norm: Any, accumulate: int, run_dir: Any
) -> None:
    """Raises ValueError for options that only the towers' own step has."""
    asked = {
        "parameters": parameters != "auto", "exchange": exchange != "packs",
        "clip_norm": clip_norm is not None, "accumulate": accumulate != 1,
        "run_dir": run_dir is not None,
    }  # fmt: skip
    for name in (name for name, is_asked in asked.items() if is_asked):
        raise ValueError(
            f"{name} belongs to the towers' own step, which this model cannot have, since "
            f"{reason}. Leave {name} out."
        )

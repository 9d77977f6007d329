"""A compiled model in words and plain numbers, by which two of them are compared."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

import keras
import numpy as np

from towers.compiled.setting import steps_per_call
from towers.ground.private_apis import (
    compile_loss_of,
    compile_metrics_of,
    flat_losses,
    flatten_layers,
    learning_rate_object,
)

UNSAID = ("name", "dtype", "learning_rate")  # Of a loss or an optimizer, in its description.


def described(model: keras.Model) -> dict[str, Any]:
    """Returns what several processes must have in common of a model, beside its variables.

    A layer's `get_config` is not asked: it may hold a whole table as its first value.
    """
    losses, metrics = compile_loss_of(model), compile_metrics_of(model)
    rate = rate_of(model)  # The chief gives the others its own, but not a schedule.
    parts = flat_losses(losses) if losses and losses.built else []
    found = {
        "steps_per_execution": steps_per_call(model) if model.compiled else None,
        "optimizer": plain(inner_optimizer(model)),
        "the schedule of the rate": None if isinstance(rate, float) else rate,
        "losses": [[plain(one.loss), plain(one.loss_weights)] for one in parts],
        "metrics": [plain(metric) for metric in (metrics.metrics if metrics else [])],
    }
    return found | described_layers(model)


def described_layers(model: keras.Model) -> dict[str, str]:
    """Returns what several processes must have in common of the layers of a model."""
    layers = enumerate(flatten_layers(model))
    return {f"layer {number}": layer_in_words(layer) for number, layer in layers}


def layer_in_words(layer: keras.layers.Layer) -> str:
    """Returns the class of a layer, and for one of Keras's own what it was made with."""
    kind = type(layer)
    of_keras = kind.__module__.startswith("keras.") and not isinstance(layer, keras.Model)
    names = inspect.signature(kind.__init__).parameters if of_keras else ()
    made = {name: getattr(layer, name, None) for name in names if name not in (*UNSAID, "seed")}
    shown = [
        f"{name}={getattr(value, '__name__', value)}"
        for name, value in made.items()
        if isinstance(value, (bool, int, float, str)) or inspect.isfunction(value)
    ]
    return f"{kind.__name__}({', '.join(shown)}) in {layer.dtype_policy.name}"


def inner_optimizer(model: keras.Model) -> Any:
    """Returns the optimizer of a model, without the loss scale that `compile` may have added."""
    optimizer = getattr(model, "optimizer", None)
    return getattr(optimizer, "inner_optimizer", optimizer)


def rate_of(model: keras.Model) -> Any:
    """Returns the learning rate of a model, or its schedule in words; None without any."""
    optimizer = inner_optimizer(model)
    if not isinstance(optimizer, keras.optimizers.Optimizer):
        return None
    rate = learning_rate_object(optimizer)
    if not isinstance(rate, keras.Variable):
        return plain(rate)
    return float(f"{float(rate.numpy()):.7g}")  # The digits of a float32.


def plain(value: Any) -> Any:
    """Returns a setting in plain values: of an object its class, and what is not its default.

    >>> plain([keras.losses.BinaryCrossentropy(from_logits=True), "mse"])
    ['BinaryCrossentropy(from_logits=True)', 'mse']
    """
    if isinstance(value, Mapping):
        if value.get("class_name") == "function":  # A function that Keras serialized.
            return plain(value["config"])
        return {str(name): plain(one) for name, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(one) for one in value]
    if isinstance(value, (str, int, float, type(None))):
        return value
    if isinstance(value, (np.ndarray, np.generic)):
        return value.tolist()
    if not hasattr(value, "get_config"):
        return getattr(value, "__name__", type(value).__name__)
    try:
        config = value.get_config()
    except Exception:  # Of any kind: it may be the user's code.
        config = {}
    defaults = inspect.signature(type(value).__init__).parameters
    given = [
        f"{name}={plain(one)}"
        for name, one in config.items()
        if name not in UNSAID
        and not (name in defaults and np.array_equal(defaults[name].default, one))
    ]
    return f"{type(value).__name__}({', '.join(given)})"

"""Losses and metrics with a value for each row: towers compute it where the outputs are in parts.

Only the values are joined; Keras reduces them as ever.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import keras
import tensorflow as tf

from towers.ground.hooks import Hook
from towers.ground.private_apis import LossFunctionWrapper, metric_function, with_metric_function
from towers.layers.known import Known
from towers.layers.rows import parts_of
from towers.variables.tower_scope import is_of

LOSS = Hook(LossFunctionWrapper, "call")
METRIC = Hook(keras.metrics.MeanMetricWrapper, "update_state")


class Values(keras.layers.Layer):
    """What a loss or a metric computes for each row, as a layer that can be asked and cut."""

    def __init__(self, function: Callable[..., Any], dtype: str | None = None):
        super().__init__(dtype=dtype)
        self._function = function
        self.built = True

    def call(self, y_true: Any, y_pred: Any) -> Any:
        """Returns the values."""
        return self._function(y_true, y_pred)


@contextlib.contextmanager
def values_on_towers(
    call: Callable[..., Any], devices: Sequence[str], layers: Known
) -> Iterator[None]:
    """The scope in which this thread's values of Keras's losses and metrics are a layer's call.

    Args:
        call: `call(run, layer, y_true, y_pred)` returns the values that `run` computes.
        devices: the towers'; outputs in parts on them are worth such a call.
        layers: one for each loss or metric.
    """

    def values(owner: Any, fn: Any, compute: Any, *pair: Any, **_: Any) -> Any:
        is_cut = isinstance(pair[-1], tf.Tensor) and parts_of(pair[-1], devices)
        if not (is_cut and is_of(fn, "keras.src.")):
            return compute(*pair)
        return call(lambda _, *own: compute(*own), layers.of(owner, lambda: Values(fn)), *pair)

    def of_loss(original: Any, loss: Any, /, y_true: Any, y_pred: Any) -> Any:
        return values(loss, loss.fn, functools.partial(original, loss), y_true, y_pred)

    def of_metric(original: Any, metric: Any, /, *args: Any, **kwargs: Any) -> Any:
        fn, options = metric_function(metric)
        own = functools.partial(values, metric, fn, functools.partial(fn, **options))
        with with_metric_function(metric, own):
            return original(metric, *args, **kwargs)

    with LOSS.through(of_loss), METRIC.through(of_metric):
        yield

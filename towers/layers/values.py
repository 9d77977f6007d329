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


class ValuesOnTowers:
    """Computes the values of Keras's own losses and metrics as a layer's call.

    It is cut by `call(run, layer, y_true, y_pred)`.
    """

    def __init__(self, call: Callable[..., Any], devices: Sequence[str]):
        self._call, self._devices = call, tuple(devices)
        self._layers = Known()  # One for each loss or metric.

    @contextlib.contextmanager
    def scope(self) -> Iterator[None]:
        """The scope in which losses and metrics of this thread are computed so."""
        with LOSS.through(self._loss), METRIC.through(self._metric):
            yield

    def _loss(self, original: Any, loss: Any, /, y_true: Any, y_pred: Any) -> Any:
        compute = functools.partial(original, loss)
        return self._values(loss, loss.fn, compute, y_true, y_pred)

    def _metric(self, original: Any, metric: Any, /, *args: Any, **kwargs: Any) -> Any:
        fn, options = metric_function(metric)
        values = functools.partial(self._values, metric, fn, functools.partial(fn, **options))
        with with_metric_function(metric, values):
            return original(metric, *args, **kwargs)

    def _values(self, owner: Any, fn: Any, compute: Any, *pair: Any, **_: Any) -> Any:
        """Returns values, computed by the towers if the outputs are there and Keras wrote `fn`."""
        is_of_keras = is_of(fn, "keras.src.")
        is_cut = isinstance(pair[-1], tf.Tensor) and parts_of(pair[-1], self._devices)
        if not (is_of_keras and is_cut):
            return compute(*pair)
        layer = self._layers.of(owner, lambda: Values(fn))
        return self._call(lambda _, *own: compute(*own), layer, *pair)

"""Random draws that follow from the row alone, for the time in which a layer is asked.

Each row draws the same numbers in the whole batch and in a part of it, so that both agree unless
the layer couples its rows. Rows differ from each other: an order drawn at random is not the order
in which they come.
"""

from __future__ import annotations

import contextlib
import contextvars
import inspect
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from towers.ground.private_apis import random_ops


class RowRange(NamedTuple):
    """The rows that are computed at the moment: the number of the first, and how many."""

    start: int
    size: int


_ROWS: contextvars.ContextVar[RowRange | None] = contextvars.ContextVar("rows", default=None)


@contextlib.contextmanager
def draws_by_row(start: int, size: int) -> Iterator[None]:
    """The scope in which rows `start` to `start + size` draw; BatchNorm is in inference mode.

    Draws and BatchNorm of other threads are as ever.
    """
    token = _ROWS.set(RowRange(start, size))
    try:
        with replaced():
            yield
    finally:
        _ROWS.reset(token)


@contextlib.contextmanager
def replaced() -> Iterator[None]:
    """The scope in which ops that draw ask for the rows of their thread."""
    originals = [(module, name, getattr(module, name)) for module, name in random_ops()]
    normalise = keras.layers.BatchNormalization.call
    for module, name, original in originals:
        setattr(module, name, by_row(name, original))
    keras.layers.BatchNormalization.call = in_inference(normalise)
    try:
        yield
    finally:
        for module, name, original in originals:
            setattr(module, name, original)
        keras.layers.BatchNormalization.call = normalise


def in_inference(normalise: Callable[..., Any]) -> Callable[..., Any]:
    """Returns BatchNorm's call, in inference mode where rows are asked."""

    def call(self: Any, inputs: Any, training: Any = None, mask: Any = None) -> Any:
        training = training if _ROWS.get() is None else False
        return normalise(self, inputs, training=training, mask=mask)

    return call


def by_row(name: str, original: Callable[..., Any]) -> Callable[..., Any]:
    """Returns an op that draws by row; the original where no rows are asked."""

    def draw(shape: Any, *args: Any, **options: Any) -> Any:
        rows = _ROWS.get()
        if rows is None:
            return original(shape, *args, **options)
        if "shuffle" in name:
            return tf.roll(shape, 1, axis=0)
        given = inspect.signature(original).bind(shape, *args, **options)
        given.apply_defaults()
        static = tf.TensorShape(tf.get_static_value(tf.convert_to_tensor(shape), partial=True))
        uniform = fractions(tf.cast(tf.convert_to_tensor(shape), tf.int32), rows)
        return tf.ensure_shape(rescaled(name, uniform, given.arguments), static)

    return draw


def rescaled(name: str, uniform: tf.Tensor, given: dict[str, Any]) -> tf.Tensor:
    """Returns fractions from 0 to 1 as what an op with these arguments draws."""
    if "int" in name:
        low, high = given.get("minval", 0), given.get("maxval", 2**31 - 1)
        dtype = given.get("dtype") if "full" in name else tf.convert_to_tensor(low).dtype
        low, high = (tf.cast(bound, tf.float64) for bound in (low, high))
        return tf.cast(low + tf.floor(uniform * (high - low)), dtype)
    value = (uniform - 0.5) * 3.0 if "normal" in name else uniform
    return tf.cast(value, given.get("dtype") or tf.float32)


def fractions(shape: tf.Tensor, rows: RowRange) -> tf.Tensor:
    """Returns float64 numbers from 0 to 1 that follow from the row and the place in it."""
    if shape.shape[0] == 0:
        return tf.constant(0.4, tf.float64)
    count = tf.reduce_prod(shape[1:])
    first = tf.where(shape[0] % rows.size == 0, rows.start * (shape[0] // rows.size), 0)
    place = tf.range(shape[0])[:, None] + first
    numbers = tf.cast(place, tf.float64) * 7.31 + tf.cast(tf.range(count)[None], tf.float64) + 1.0
    return tf.reshape(tf.math.floormod(tf.sin(numbers * 12.9898) * 43758.5453, 1.0), shape)

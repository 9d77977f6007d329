"""Values near a call's own with which its layer is asked, and what counts as rounding.

No branch stays closed by a 0.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from towers.layers.part import Call
from towers.layers.rows import is_differentiable

TOLERANCES = {"float64": 1e-9, "float32": 1e-4, "float16": 2e-2, "bfloat16": 5e-2}
MOVED = 0.1  # By this part of the largest weight, or of each number of a row.


def moved_from(rows: tf.Tensor, first: int) -> tf.Tensor:
    """Returns rows that are smaller from the `first` on, and shorter if they are no floats."""
    rest = rows[first:]
    if rows.dtype.is_floating:
        rest = above_zero(rest) * (1 - MOVED)
    elif rows.dtype.is_integer:
        rest = rest // 2
    if rows.dtype.is_integer or rows.dtype.is_bool:
        if rest.shape.rank > 1 and rest.shape[-1] > 1:
            rest = tf.concat([rest[..., :-1], tf.zeros_like(rest[..., -1:])], axis=-1)
        elif rows.dtype.is_bool:
            rest = tf.concat([rest[:-1], tf.zeros_like(rest[-1:])], axis=0)
    return tf.concat([rows[:first], rest], axis=0)


def alike_until(rows: tf.Tensor, stop: int) -> tf.Tensor:
    """Returns rows that are all near the first before `stop`: where places are few, they want one.

    No two of them are equal, if they are floats.
    """
    alike = tf.repeat(rows[:1], stop, axis=0)
    if rows.dtype.is_floating:
        alike = above_zero(alike)
        factors = tf.cast(1 - MOVED * np.arange(stop) / stop, rows.dtype)
        alike *= tf.reshape(factors, [stop] + [1] * (rows.shape.rank - 1))
    return tf.concat([alike, rows[stop:]], axis=0)


def above_zero(rows: tf.Tensor) -> tf.Tensor:
    """Returns the rows, or small numbers if all are 0, as those that build a model may be."""
    return tf.where(tf.reduce_any(rows != 0), rows, tf.abs(noise_for(rows)))


def doubled(row: tf.Tensor) -> tf.Tensor:
    """Returns a single row twice, the second time with other numbers, as far as it has others."""
    other = row
    if row.dtype.is_floating:
        other = row * 1.1 + 0.1
    elif row.shape.rank > 1:
        other = tf.reverse(row, axis=[-1])
    return tf.concat([row, other], axis=0)


def moved_weights(layer: Any, *, with_states: bool) -> dict[int, tf.Tensor]:
    """Returns a value near its own for each trainable variable of floats, by its id.

    Those of states only grow: many are variances, or weights of a loss that begin at 0.
    """
    moved = {}
    trained = set(map(id, layer.trainable_variables))
    for variable in layer.variables if with_states else layer.trainable_variables:
        value = tf.convert_to_tensor(variable.value)
        if value.dtype.is_floating:
            noise = noise_for(value)
            moved[id(variable)] = value + (noise if id(variable) in trained else tf.abs(noise))
    return moved


def moved_arguments(call: Call) -> dict[int, tf.Tensor]:
    """Returns a value near its own for each argument of floats without rows, by its index."""
    pairs = [(index, leaf) for index, leaf in enumerate(call.leaves) if index not in call.rows]
    return {index: towards_half(one) for index, one in pairs if is_differentiable(one)}


@contextlib.contextmanager
def moved_in_place(variables: Sequence[tf.Variable]) -> Iterator[None]:
    """The scope in which variables that no scope of Keras's replaces have values near their own."""
    before = [tf.identity(variable) for variable in variables]
    try:
        for variable, value in zip(variables, before, strict=True):
            variable.assign(towards_half(value))
        yield
    finally:
        for variable, value in zip(variables, before, strict=True):
            variable.assign(value)


def towards_half(value: tf.Tensor) -> tf.Tensor:
    """Returns numbers near these: smaller ones, and larger than 0, as a part of 1 stays one."""
    noise = tf.abs(noise_for(value))
    return tf.where(value > 0, value - noise, value + noise)


def noise_for(value: tf.Tensor) -> tf.Tensor:
    """Returns numbers of both signs, of which the largest are a part of the largest of these."""
    place = tf.cast(tf.range(tf.size(value)), tf.float64) + 1.0
    noise = tf.cast(tf.reshape(tf.sin(place * 78.233), tf.shape(value)), value.dtype)
    largest = tf.reduce_max(tf.abs(value))
    return MOVED * tf.where(largest > 0, largest, tf.ones_like(largest)) * noise


def near(expected: np.ndarray, received: np.ndarray) -> bool:
    """Returns whether two arrays differ by rounding alone."""
    if expected.dtype.kind not in "fcV":
        return bool(np.array_equal(expected, received))
    tolerance = TOLERANCES.get(expected.dtype.name, 1e-4)
    one, other = (np.asarray(value, np.complex128 if value.dtype.kind == "c" else np.float64)
                  for value in (expected, received))  # fmt: skip
    if not np.array_equal(np.isfinite(one), np.isfinite(other)):
        return False
    one, other = (value[np.isfinite(value)] for value in (one, other))
    size = max(np.abs(one).max(initial=0), np.abs(other).max(initial=0))
    return bool(np.abs(one - other).max(initial=0) <= tolerance * size + 1e-30)

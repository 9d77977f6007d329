"""States: one value of each non-trainable variable, such as a moving average, from all parts.

Keras's `aggregation` of a variable says how its values become one: "sum" adds what each part added
to it, "only_first_replica" takes the value of the first part. Others are weighted means.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

from towers.step.parts import Part

BATCH_NORM_POLICIES = ("first", "mean")


def share_of_state(
    variable: keras.Variable,
    value: tf.Tensor | None,
    before: Any,
    part: Part,
    weight: tf.Tensor,
    nonempty: tf.Tensor,
) -> tf.Tensor | None:
    """Returns what a part adds to the sum from which the variable's new value follows.

    Args:
        variable: the state.
        value: the value that the tower function assigned, or None if it assigned none.
        before: the value before the step.
        part: the part of the batch.
        weight: its number of examples (or tokens), a scalar.
        nonempty: scalar, 1 if the part has rows, or 0.
    """
    if value is None:
        return None
    way, value = way_to_merge(variable), widen(value)
    if way == "sum":
        return times_or_zero(value - widen(tf.convert_to_tensor(before)), nonempty)
    if way == "first":
        return tf.where(part.is_first, value, tf.zeros_like(value))
    return times_or_zero(value, weight) if part.gives_averages else tf.zeros_like(value)


def way_to_merge(variable: keras.Variable) -> str:
    """Returns how the values of a state become one: `sum`, `first` or `mean`."""
    if variable.aggregation == "sum":
        return "sum"
    is_floating = tf.as_dtype(variable.dtype).is_floating
    return "mean" if is_floating and variable.aggregation != "only_first_replica" else "first"


def widen(value: tf.Tensor) -> tf.Tensor:
    """Returns the value in a type in which it can be weighted and added without overflow."""
    if value.dtype in (tf.float16, tf.bfloat16):
        return tf.cast(value, tf.float32)
    return tf.cast(value, tf.int32) if value.dtype == tf.bool else value


def times_or_zero(value: tf.Tensor, factor: tf.Tensor) -> tf.Tensor:
    """Returns the product; 0 for a factor of 0, also if the value is not finite."""
    factor = tf.cast(factor, value.dtype)
    is_floating = value.dtype.is_floating
    return tf.math.multiply_no_nan(value, factor) if is_floating else value * factor


def add_states(first: tf.Tensor | None, second: tf.Tensor | None) -> tf.Tensor | None:
    """Returns the sum of two parts' shares of a state."""
    if first is None or second is None:
        return second if first is None else first
    return first + second


def merge_states(
    variables: Sequence[keras.Variable],
    sums: Sequence[tf.Tensor | None],
    weight: tf.Tensor,
    before: Sequence[Any],
) -> list[tf.Tensor | None]:
    """Returns the new value of each state; None if no part assigned it.

    Args:
        variables: the states.
        sums: for each state, the sum of its shares.
        weight: the weight of the moving averages.
        before: for each state, its value before the step.
    """
    rows = zip(variables, sums, before, strict=True)
    return [
        None if total is None else merge_state(variable, total, weight, value)
        for variable, total, value in rows
    ]


def merge_state(
    variable: keras.Variable, total: tf.Tensor, weight: tf.Tensor, before: Any
) -> tf.Tensor:
    """Returns the new value of a state from the sum of its shares.

    A mean without any weight (all padding) is the value `before` the step.
    """
    way, before = way_to_merge(variable), tf.convert_to_tensor(before)
    if way == "sum":
        total = widen(before) + total
    elif way == "mean":
        total = tf.where(weight > 0, total / tf.cast(weight, total.dtype), widen(before))
    return tf.cast(total, before.dtype)

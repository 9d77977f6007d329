"""States: one value of each non-trainable variable, such as a moving average, from all towers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from towers.step.gradients import add_in_pairs

BATCH_NORM_POLICIES = ("first", "mean")


def sum_states(
    tower_states: Sequence[Sequence[tf.Tensor | None]],
    weights: Sequence[tf.Tensor],
    policy: str,
    *,
    has_first_tower: bool = True,
) -> tuple[list[tf.Tensor | None], tf.Tensor]:
    """Returns each variable's weighted values summed over the towers, and the weight of the sums.

    Args:
        tower_states: for each tower, for each variable, its value times the tower's weight, or
            None if the tower function did not assign it.
        weights: for each tower, its number of examples (or tokens).
        policy: `first`, the first tower's values, or `mean`, the towers' weighted mean.
        has_first_tower: whether tower 0 of all processes is one of these. Without it, zeros stand
            for the values that only tower 0 provides: integers, and all values under `first`.
    """
    if policy == "first":
        tower_states, weights = tower_states[:1], weights[:1]
    sums = [add_in_pairs(add_states, values) for values in zip(*tower_states, strict=True)]
    weight = add_in_pairs(tf.add, weights)
    if has_first_tower:
        return sums, weight
    is_mean = policy == "mean"
    sums = [
        value if value is None or (is_mean and value.dtype.is_floating) else tf.zeros_like(value)
        for value in sums
    ]
    return sums, weight if is_mean else tf.zeros_like(weight)


def add_states(first: tf.Tensor | None, second: tf.Tensor | None) -> tf.Tensor | None:
    """Returns the sum of two towers' weighted values of a state; for integers, the first value."""
    if first is None or second is None:
        return second if first is None else first
    return first + second if first.dtype.is_floating else first


def mean_states(
    sums: Sequence[tf.Tensor | None], weight: tf.Tensor, before: Sequence[Any]
) -> list[tf.Tensor | None]:
    """Returns the weighted mean of each state, from the sums over all towers."""
    return [mean_state(total, weight, value) for total, value in zip(sums, before, strict=True)]


def mean_state(total: tf.Tensor | None, weight: tf.Tensor, before: Any) -> tf.Tensor | None:
    """Returns a sum of weighted values divided by their weight; integers unchanged.

    If the weight is 0 (all padding), the state keeps its value `before` the step.
    """
    if total is None or not total.dtype.is_floating:
        return total
    mean = total / tf.cast(weight, total.dtype)
    return tf.where(weight > 0, mean, tf.convert_to_tensor(before))


def weigh_state(value: tf.Tensor | None, weight: tf.Tensor) -> tf.Tensor | None:
    """Returns an assigned state times the weight; integers unchanged."""
    if value is None or not value.dtype.is_floating:
        return value
    return value * tf.cast(weight, value.dtype)

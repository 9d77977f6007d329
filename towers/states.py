"""Non-trainable variables, such as BatchNorm's moving averages: one value from many towers."""

from __future__ import annotations

from collections.abc import Sequence

import keras
import tensorflow as tf

from towers.gradients import add_in_pairs

BATCH_NORM_POLICIES = ("first", "mean")


def merge_states(
    tower_states: Sequence[Sequence[tf.Tensor | None]],
    weights: Sequence[tf.Tensor],
    states: Sequence[keras.Variable],
    policy: str,
) -> list[tf.Tensor | None]:
    """Returns one value for each non-trainable variable, None where no tower assigned it.

    Args:
        tower_states: for each tower, its values times its weight, in the order of `states`.
        weights: for each tower, how many examples (or tokens) it had.
        states: the variables.
        policy: `first`, the first tower's values, or `mean`, their weighted mean.
    """
    sums, weight = sum_states(tower_states, weights, policy)
    return mean_states(sums, weight, states)


def sum_states(
    tower_states: Sequence[Sequence[tf.Tensor | None]],
    weights: Sequence[tf.Tensor],
    policy: str,
    *,
    leads: bool = True,
) -> tuple[list[tf.Tensor | None], tf.Tensor]:
    """Returns the towers' weighted values summed for each variable, and the weight of the sums.

    Args:
        tower_states, weights, policy: as in `merge_states`.
        leads: whether the very first tower is among these; of several processes that add up
            their sums only the one that has it contributes what counts once.
    """
    if policy == "first":
        tower_states, weights = tower_states[:1], weights[:1]
    sums = [sum_state(values, leads) for values in zip(*tower_states, strict=True)]
    weight = add_in_pairs(tf.add, weights)
    if policy == "first" and not leads:
        sums = [None if value is None else tf.zeros_like(value) for value in sums]
        weight = tf.zeros_like(weight)
    return sums, weight


def sum_state(values: Sequence[tf.Tensor | None], leads: bool) -> tf.Tensor | None:
    """Returns the sum of a state's weighted values; whole numbers are the first's."""
    total = add_in_pairs(add_states, values)
    if total is None or total.dtype.is_floating or leads:
        return total
    return tf.zeros_like(total)


def add_states(first: tf.Tensor | None, second: tf.Tensor | None) -> tf.Tensor | None:
    """Returns the sum of a state's weighted values; whole numbers are the first's."""
    if first is None or second is None:
        return second if first is None else first
    return first + second if first.dtype.is_floating else first


def mean_states(
    sums: Sequence[tf.Tensor | None], weight: tf.Tensor, states: Sequence[keras.Variable]
) -> list[tf.Tensor | None]:
    """Returns the weighted mean of each state, from the sums over all towers."""
    return [
        None if value is None else merge_state(state, [value], weight)
        for state, value in zip(states, sums, strict=True)
    ]


def merge_state(
    state: keras.Variable, values: Sequence[tf.Tensor | None], weight: tf.Tensor
) -> tf.Tensor | None:
    """Returns the weighted mean of a state's weighted values; whole numbers are the first's.

    Without any weight (all of it padding) the state stays as it is.
    """
    present = [value for value in values if value is not None]
    if not present or not present[0].dtype.is_floating:
        return present[0] if present else None
    mean = tf.add_n(present) / tf.cast(weight, present[0].dtype)
    return tf.where(weight > 0, mean, tf.convert_to_tensor(state.value))


def weigh_state(value: tf.Tensor | None, weight: tf.Tensor) -> tf.Tensor | None:
    """Returns an assigned state times the weight; whole numbers are taken as they are."""
    if value is None or not value.dtype.is_floating:
        return value
    return value * tf.cast(weight, value.dtype)

"""Sums over a shard, the results of a tower; nothing is divided here."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from towers.step.gradients import Gradient, add_in_pairs, sum_gradients, sum_repeated_rows
from towers.step.states import add_states
from towers.step.tower_function import CarriedValues


class TowerSums(NamedTuple):
    """The results of a tower: sums over its shard, not divided yet.

    Attributes:
        loss: scalar, summed over the examples (or tokens).
        weight: scalar of the loss's dtype, the number of examples (or tokens).
        metrics: by name, a pair of scalars (sum, weight).
        gradients: one per trainable variable, of the summed loss; None if the loss does not
            depend on the variable.
        states: for each non-trainable variable, its new value times the weight; None if the tower
            function did not assign it.
        carried: the state to carry into the next step, one row per row of the shard.
    """

    loss: tf.Tensor
    weight: tf.Tensor
    metrics: dict[str, tuple[tf.Tensor, tf.Tensor]]
    gradients: list[Gradient]
    states: list[tf.Tensor | None]
    carried: CarriedValues


def metric_sums(value: Any, weight: tf.Tensor, nonempty: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns a metric as (sum, weight) in the loss's dtype, zeros for an empty shard."""
    if not isinstance(value, tuple):
        return tf.cast(value, weight.dtype) * nonempty, weight
    total, total_weight = value
    return tf.cast(total, weight.dtype) * nonempty, tf.cast(total_weight, weight.dtype) * nonempty


def finish_micro_batch(sums: TowerSums, size: tf.Tensor) -> TowerSums:
    """Returns a micro-batch's sums with unique rows in sparse gradients and `size` carried rows."""
    return sums._replace(
        gradients=list(map(sum_repeated_rows, sums.gradients)),
        carried=tf.nest.map_structure(lambda rows: rows[:size], sums.carried),
    )


def tensors_of(sums: TowerSums) -> list[tf.Tensor]:
    """Returns every tensor in the sums."""
    parts = tf.nest.flatten(sums, expand_composites=True)
    return [part for part in parts if part is not None]


def add_sums(first: TowerSums, second: TowerSums) -> TowerSums:
    """Returns the sums over both micro-batches (or shards)."""
    return TowerSums(
        loss=first.loss + second.loss,
        weight=first.weight + second.weight,
        metrics=tf.nest.map_structure(tf.add, first.metrics, second.metrics),
        gradients=sum_gradients([first.gradients, second.gradients]),
        states=list(map(add_states, first.states, second.states)),
        carried=tf.nest.map_structure(
            lambda *rows: tf.concat(rows, axis=0), first.carried, second.carried
        ),
    )


def sum_results(
    sums: Sequence[TowerSums],
) -> tuple[tf.Tensor, tf.Tensor, dict[str, tuple[tf.Tensor, tf.Tensor]]]:
    """Returns loss, weight and metrics summed over the towers."""
    parts = [(tower.loss, tower.weight, tower.metrics) for tower in sums]
    return add_in_pairs(functools.partial(tf.nest.map_structure, tf.add), parts)

"""Sums over a shard, the results of a tower; nothing is divided here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from towers.step.states import add_states
from towers.step.tower_function import CarriedValues
from towers.travel.collectives import Packed
from towers.travel.gradients import Gradient, sum_gradients, sum_repeated_rows
from towers.travel.pairs import add_in_pairs

MetricSums = tuple[tf.Tensor, tf.Tensor | None]


class Denominators(NamedTuple):
    """What several losses are divided by, summed over a shard or over a batch.

    Attributes:
        rows: scalar of the losses' dtype, the number of examples.
        weights: for each loss, a scalar of its dtype; None for a loss that is not divided.
    """

    rows: tf.Tensor
    weights: tuple[tf.Tensor | None, ...]


class TowerSums(NamedTuple):
    """The results of a tower: sums over its shard, not divided yet.

    Attributes:
        loss: scalar, summed over the examples (or tokens).
        weight: scalar of the loss's dtype, the number of examples (or tokens).
        metrics: by name, a pair of scalars (sum, weight), or (sum, None), a sum of any shape.
        gradients: one per trainable variable, of the summed loss; None if the loss does not
            depend on the variable.
        states: for each non-trainable variable, what the shard adds to the sum from which its new
            value follows (`share_of_state`); None if the tower function did not assign it.
        carried: the state to carry into the next step, one row per row of the shard.
        assigned: for each trainable variable, the value that every tower assigned, or None.
        packed: the gradients as a group of devices sums them; None where they travel otherwise.

    Before several losses are folded into one, `loss` is a tuple and `weight` is `Denominators`.
    """

    loss: Any
    weight: Any
    metrics: dict[str, MetricSums]
    gradients: list[Gradient]
    states: list[tf.Tensor | None]
    carried: CarriedValues
    assigned: list[tf.Tensor | None]
    packed: Packed | None = None

    @property
    def entries(self) -> list[Gradient]:
        """Vectors and gradients that together have the entries of all gradients, and zeros."""
        return self.gradients if self.packed is None else self.packed.entries


def count_once(weights: Any, nonempty: tf.Tensor, size: tf.Tensor) -> Any:
    """Returns a loss's weight, or the denominators of several; zeros for an empty shard.

    Args:
        weights: a scalar, or a tuple of scalars and None.
        nonempty: scalar of the loss's dtype: 1, or 0 for an empty shard.
        size: int32 scalar, the number of rows that count.
    """
    if not isinstance(weights, tuple):
        return tf.cast(weights, nonempty.dtype) * nonempty
    counted = [None if one is None else tf.cast(one, nonempty.dtype) * nonempty for one in weights]
    return Denominators(tf.cast(size, nonempty.dtype), tuple(counted))


def fold_losses(sums: TowerSums, totals: Denominators | None) -> TowerSums:
    """Returns the sums with one loss, whose weight is the number of rows.

    The loss of a batch is the sum of S / D over its losses: each one's sum over all shards, divided
    by its own denominator. With `rows / D` as a factor, it is one sum divided by the rows. So all
    that follows (gradients, clipping, loss scale, reports) is that of one loss.

    Args:
        sums: a shard's sums.
        totals: the denominators over all towers, micro-batches and processes.

    Raises:
        ValueError: there are several losses, and no totals.
    """
    if not isinstance(sums.loss, tuple):
        return sums
    if totals is None:
        raise ValueError(
            "Several losses, or one without a weight, need the denominators of the whole batch "
            "before the backward pass, which this step does not compute. Use build_train_step."
        )
    parts = [
        loss * (totals.rows if total is None else tf.math.divide_no_nan(totals.rows, total))
        for loss, total in zip(sums.loss, totals.weights, strict=True)
    ]
    return sums._replace(loss=tf.add_n(parts), weight=sums.weight.rows)


def metric_sums(value: Any, weight: tf.Tensor, nonempty: tf.Tensor) -> MetricSums:
    """Returns a metric as (sum, weight) in the loss's dtype, zeros for an empty shard.

    A sum that is not divided keeps its dtype.
    """
    if not isinstance(value, tuple):
        return tf.cast(value, weight.dtype) * nonempty, weight
    total, total_weight = value
    if total_weight is None:
        total = tf.convert_to_tensor(total)
        return total * tf.cast(nonempty, total.dtype), None
    return tf.cast(total, weight.dtype) * nonempty, tf.cast(total_weight, weight.dtype) * nonempty


def finish_micro_batch(sums: TowerSums, size: tf.Tensor) -> TowerSums:
    """Returns a micro-batch's sums with unique rows in sparse gradients and `size` carried rows."""
    return sums._replace(
        gradients=list(map(sum_repeated_rows, sums.gradients)),
        carried=tf.nest.map_structure(lambda rows: rows[:size], sums.carried),
    )


def add_sums(first: TowerSums, second: TowerSums) -> TowerSums:
    """Returns the sums over both micro-batches (or shards)."""
    return TowerSums(
        loss=first.loss + second.loss,
        weight=first.weight + second.weight,
        metrics=add_nests(first.metrics, second.metrics),
        gradients=sum_gradients([first.gradients, second.gradients]),
        states=list(map(add_states, first.states, second.states)),
        carried=tf.nest.map_structure(
            lambda *rows: tf.concat(rows, axis=0), first.carried, second.carried
        ),
        assigned=first.assigned,
    )


def add_nests(first: Any, second: Any) -> Any:
    """Returns the sums of two nests of the same structure, in which None stays None."""

    def add(one: tf.Tensor | None, other: tf.Tensor | None) -> tf.Tensor | None:
        return None if one is None else tf.add(one, other)

    return tf.nest.map_structure(add, first, second)


def stack_nests(nests: Sequence[Any]) -> Any:
    """Returns nests of the same structure as one, whose tensors begin with a dimension more."""
    return tf.nest.map_structure(
        lambda *values: None if values[0] is None else tf.stack(values), *nests
    )


def sum_results(sums: Sequence[TowerSums]) -> tuple[Any, Any, dict[str, MetricSums]]:
    """Returns loss, weight and metrics summed over the towers."""
    return add_in_pairs(add_nests, [(tower.loss, tower.weight, tower.metrics) for tower in sums])

"""Sums over a shard, the results of a tower; nothing is divided here.

The value of a non-trainable variable, such as a moving average, is a sum of shares, too. Keras's
`aggregation` of a variable says how its values become one: "sum" adds what each part added to it,
"only_first_replica" takes the value of the first part. Others are weighted means.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from towers.step.carried import CarriedValues
from towers.step.micro_batches import Part
from towers.step.tower_function import Results
from towers.travel.collectives import Packed
from towers.travel.gradients import Gradient, sum_gradients, sum_repeated_rows
from towers.variables.tower_scope import TowerScope

MetricSums = tuple[tf.Tensor, tf.Tensor | None]


class Denominators(NamedTuple):
    """What losses are divided by, summed over a shard or over a batch.

    Attributes:
        rows: scalar of the losses' dtype, the number of examples; of one loss, its weight.
        weights: for each of several losses, a scalar of its dtype; None for a loss that is not
            divided.
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
        states: for each non-trainable variable, the shard's term of the sum that gives its new
            value (`share_of_state`); None if the tower function did not assign it.
        carried: the state to carry into the next step, one row per row of the shard.
        assigned: for each trainable variable, the value that every tower assigned, or None.
        packed: the gradients as a group of devices sums them; None where they travel otherwise.

    Before several losses are folded into one, `loss` is a tuple and `weight` is `Denominators`.
    """

    loss: Any
    weight: Any
    metrics: dict[str, MetricSums]
    gradients: Sequence[Gradient] = ()
    states: Sequence[tf.Tensor | None] = ()
    carried: CarriedValues = ()
    assigned: Sequence[tf.Tensor | None] = ()
    packed: Packed | None = None

    @property
    def entries(self) -> Sequence[Gradient]:
        """Vectors and gradients that together have the entries of all gradients, and zeros."""
        return self.gradients if self.packed is None else self.packed.entries


def sums_of(
    results: Results, carried: CarriedValues, size: tf.Tensor, scope: TowerScope, part: Part
) -> TowerSums:
    """Returns what a tower function returned and assigned for a micro-batch as sums.

    Those of an empty micro-batch are zeros.

    Args:
        size: int32 scalar, the number of rows that count.
        part: the micro-batch as a part of the global batch.
    """
    loss, weight, metrics = results
    losses = loss if isinstance(loss, tuple) else (loss,)
    nonempty = tf.cast(size > 0, losses[0].dtype)  # 1, or 0 for an empty shard.

    def counted(one: Any) -> tf.Tensor | None:
        return None if one is None else tf.cast(one, nonempty.dtype) * nonempty

    weight, rows = tf.nest.map_structure(counted, weight), tf.cast(size, nonempty.dtype)
    several = isinstance(weight, tuple)
    count = rows if several else weight
    return TowerSums(
        loss=tf.nest.map_structure(lambda one: one * nonempty, loss),
        weight=Denominators(rows, weight) if several else weight,
        metrics={key: metric_sums(value, count, nonempty) for key, value in metrics.items()},
        states=[
            share_of_state(state, scope.updated(state), scope.before(state), part, count, nonempty)
            for state in scope.shared.states
        ],
        carried=carried,
        assigned=list(map(scope.updated, scope.shared.trainable)),
    )


def fold_losses(sums: TowerSums, totals: Denominators | None) -> TowerSums:
    """Returns the sums with one loss, whose weight is the number of rows.

    The loss of a batch is the sum of S / D over its losses: each one's sum over all shards, divided
    by its own denominator. With `rows / D` as a factor, it is one sum divided by the rows. So all
    that follows (gradients, clipping, loss scale, reports) is that of one loss.

    Args:
        totals: the denominators over all towers, micro-batches and processes.

    Raises:
        ValueError: there are several losses, and no totals.
    """
    if not isinstance(sums.loss, tuple):
        return sums
    if totals is None:
        raise ValueError(
            "Several losses, or one without a weight, need the denominators of the whole batch "
            "before the backward pass, and this step does not compute them. Use build_train_step."
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

    def counted(one: Any) -> tf.Tensor:  # A number of Python's is float32 of its own accord.
        number = tf.convert_to_tensor(one, dtype_hint=weight.dtype)
        return tf.cast(number, weight.dtype) * nonempty

    if not isinstance(value, tuple):
        return counted(value), weight
    total, total_weight = value
    if total_weight is None:
        total = tf.convert_to_tensor(total)
        return total * tf.cast(nonempty, total.dtype), None
    return counted(total), counted(total_weight)


def finish_sums(sums: TowerSums, size: tf.Tensor) -> TowerSums:
    """Returns a micro-batch's sums with unique rows in sparse gradients and `size` carried rows."""
    return sums._replace(
        gradients=list(map(sum_repeated_rows, sums.gradients)),
        carried=tf.nest.map_structure(lambda rows: rows[:size], sums.carried),
    )


def add_sums(first: TowerSums, second: TowerSums) -> TowerSums:
    """Returns the sums over both micro-batches (or shards)."""
    loss, weight, metrics = add_nests(first[:3], second[:3])
    return TowerSums(
        loss,
        weight,
        metrics,
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
        value: the value that the tower function assigned, or None if it assigned none.
        before: the value before the step.
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


def widen(value: Any) -> Any:
    """Returns a state or a gradient in a type in which it can be weighted and added; None as None.

    In 16 bits a sum overflows, or stops where a part is below its last bit.
    """
    if value is None:
        return None
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

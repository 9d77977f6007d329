"""The results of a step: means over the batch and over each tower's shard."""

from __future__ import annotations

from typing import Any, NamedTuple

import tensorflow as tf

from towers.step.exchange import Total
from towers.step.sums import MetricSums, TowerSums
from towers.step.update import Change


class TowerResults(NamedTuple):
    """The results of each tower; every tensor has the shape [num_towers].

    Attributes:
        loss: mean over the tower's shard; 0 for an empty shard, as for the metrics.
        weight: the number of examples (or tokens) in the shard.
        metrics: by name, the mean over the tower's shard.
        metric_weights: by name, what the metric is a mean over, None for a sum.
        gradient_norm: norm of the tower's own mean gradient.
    """

    loss: tf.Tensor
    weight: tf.Tensor
    metrics: dict[str, tf.Tensor]
    metric_weights: dict[str, tf.Tensor | None]
    gradient_norm: tf.Tensor


class StepResults(NamedTuple):
    """The results of one step, scalars over the whole batch.

    Attributes:
        loss: mean over every example (or token) of the batch, before the update; with several
            losses, the sum of their means.
        weight: the number of examples (or tokens).
        metrics: by name, the mean over the batch; the sum of a metric without a weight.
        metric_weights: by name, what the metric is a mean over; None for a metric without one.
        gradient_norm: norm of the averaged gradient before clipping.
        learning_rate: the learning rate of this update.
        finite: bool, whether the gradient was finite; only then the update was applied.
        loss_scale: the float16 loss scale of this step, 1 without one.
        towers: the results of each tower.
    """

    loss: tf.Tensor
    weight: tf.Tensor
    metrics: dict[str, tf.Tensor]
    metric_weights: dict[str, tf.Tensor | None]
    gradient_norm: tf.Tensor
    learning_rate: tf.Tensor
    finite: tf.Tensor
    loss_scale: tf.Tensor
    towers: TowerResults


class EvaluationResults(NamedTuple):
    """The sums over one batch and all towers: add those of all batches, then divide.

    Attributes:
        loss, weight, metrics: as in `TowerSums` before several losses are folded into one.
    """

    loss: Any
    weight: Any
    metrics: dict[str, MetricSums]


def nothing(results: Any) -> None:
    """Does nothing with the results of a step."""


def step_results(
    each: TowerSums, total: Total, change: Change, scales: dict[str, tf.Tensor]
) -> StepResults:
    """Returns the results of a step.

    Args:
        each: the sums of each tower.
        total: those over all towers; without norms if there is one tower in one process, whose
            gradient norm is that of the averaged gradient.
        scales: the learning rate and the loss scale.
    """
    with tf.name_scope("results"):
        norm = change.gradient_norm
        norms = tf.stack([norm]) if total.norms is None else total.norms
        return StepResults(
            **mean_results(total.sums),
            gradient_norm=norm,
            finite=change.finite,
            **scales,
            towers=TowerResults(**mean_results(each), gradient_norm=norms),
        )


def mean_results(sums: TowerSums) -> dict[str, Any]:
    """Returns loss and metrics of shards or of a batch as means, with their weights."""
    return {
        "loss": tf.math.divide_no_nan(sums.loss, sums.weight),
        "weight": sums.weight,
        "metrics": {name: mean_metric(*pair) for name, pair in sums.metrics.items()},
        "metric_weights": {name: weight for name, (_, weight) in sums.metrics.items()},
    }


def mean_metric(total: tf.Tensor, weight: tf.Tensor | None) -> tf.Tensor:
    """Returns a metric's mean, or its sum without a weight."""
    return total if weight is None else tf.math.divide_no_nan(total, weight)

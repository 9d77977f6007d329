"""What a step returns: means over the batch and over each tower's shard."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from towers.step.exchange import Total
from towers.step.gradients import global_norm
from towers.step.sums import TowerSums
from towers.step.update import Change, Used


class TowerResults(NamedTuple):
    """Each tower's own part of a step, every tensor of shape [num_towers].

    Attributes:
        loss: mean over the tower's shard; 0 for an empty shard, as for the metrics.
        weight: how many examples (or tokens) the shard holds.
        metrics: by name, the mean over the tower's shard.
        gradient_norm: norm of the tower's own mean gradient.
    """

    loss: tf.Tensor
    weight: tf.Tensor
    metrics: dict[str, tf.Tensor]
    gradient_norm: tf.Tensor


class StepResults(NamedTuple):
    """What one step returns, scalars over the whole batch.

    Attributes:
        loss: mean over every example (or token) of the batch, before the update.
        weight: how many there were.
        metrics: by name, the mean over the batch.
        gradient_norm: norm of the averaged gradient, before it is clipped.
        learning_rate: what this update used.
        finite: bool, whether the gradient was finite and the update therefore applied.
        loss_scale: the scale of float16 losses in this step, 1 without.
        towers: each tower's part.
    """

    loss: tf.Tensor
    weight: tf.Tensor
    metrics: dict[str, tf.Tensor]
    gradient_norm: tf.Tensor
    learning_rate: tf.Tensor
    finite: tf.Tensor
    loss_scale: tf.Tensor
    towers: TowerResults


class EvaluationResults(NamedTuple):
    """The sums over one batch and all towers: add them up, then divide.

    Attributes:
        loss: scalar, summed over the examples (or tokens).
        weight: scalar, how many there were.
        metrics: by name, a pair of scalars (sum, weight).
    """

    loss: tf.Tensor
    weight: tf.Tensor
    metrics: dict[str, tuple[tf.Tensor, tf.Tensor]]


def step_results(
    sums: Sequence[TowerSums],
    total: Total,
    change: Change,
    used: Used,
    devices: Sequence[str] | None,
) -> StepResults:
    """Returns the results of a step.

    Args:
        sums: what each tower handed back.
        total: the sums over all towers.
        change: what was made of them.
        used: what the update used.
        devices: the towers', where their gradients are; None if there is one tower anywhere,
            whose norm is that of the averaged gradient.
    """
    with tf.name_scope("results"):
        norm = change.gradient_norm
        return StepResults(
            **mean_results(total),
            gradient_norm=norm,
            learning_rate=used.learning_rate,
            finite=change.finite,
            loss_scale=used.loss_scale,
            towers=tower_results(sums, devices, norm),
        )


def mean_results(sums: TowerSums | Total) -> dict[str, Any]:
    """Returns the mean loss and metrics of a shard or a batch, with its weight."""
    means = {key: tf.math.divide_no_nan(*pair) for key, pair in sums.metrics.items()}
    loss = tf.math.divide_no_nan(sums.loss, sums.weight)
    return {"loss": loss, "weight": sums.weight, "metrics": means}


def tower_results(
    sums: Sequence[TowerSums], devices: Sequence[str] | None, norm: tf.Tensor
) -> TowerResults:
    """Returns each tower's means; arguments as in `step_results`."""
    each = list(map(mean_results, sums))
    norms = [norm] if devices is None else list(map(own_norm, sums, devices))
    return TowerResults(
        loss=tf.stack([mean["loss"] for mean in each]),
        weight=tf.stack([mean["weight"] for mean in each]),
        metrics={
            key: tf.stack([mean["metrics"][key] for mean in each]) for key in each[0]["metrics"]
        },
        gradient_norm=tf.stack(norms),
    )


def own_norm(tower: TowerSums, device: str) -> tf.Tensor:
    """Returns the norm of a tower's mean gradient; NaN or infinity tells whose it was."""
    with tf.device(device):  # Where the gradients are.
        norm = global_norm(tower.gradients, tower.weight.dtype)
        return norm * tf.math.reciprocal_no_nan(tower.weight)

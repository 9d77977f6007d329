"""What a step returns: means over the batch and over each tower's shard."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from towers.step.gradients import Gradient, add_in_pairs, global_norm
from towers.step.states import sum_states
from towers.step.tower import TowerSums


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


class Totals(NamedTuple):
    """The sums over all towers, and across processes: what the update is made from.

    Attributes:
        loss, weight, metrics, gradients: as in `TowerSums`.
        states: for each non-trainable variable that was assigned, the weighted values summed.
        state_weight: the weight of these.
    """

    loss: tf.Tensor
    weight: tf.Tensor
    metrics: dict[str, tuple[tf.Tensor, tf.Tensor]]
    gradients: list[Gradient]
    states: list[tf.Tensor | None]
    state_weight: tf.Tensor


def sum_towers(
    towers: Sequence[TowerSums], gradients: list[Gradient], policy: str, *, leads: bool = True
) -> Totals:
    """Returns the sums over the towers.

    Args:
        towers: what each hands back.
        gradients: theirs, summed.
        policy: the BatchNorm policy.
        leads: as in `sum_states`.
    """
    weights = [tower.weight for tower in towers]
    states, state_weight = sum_states(
        [tower.states for tower in towers], weights, policy, leads=leads
    )
    return Totals(*total_results(towers), gradients, states, state_weight)


def mean_results(towers: Sequence[TowerSums | Totals]) -> dict[str, Any]:
    """Returns the mean loss and metrics of the batch, with its weight."""
    loss, weight, metrics = total_results(towers)
    means = {key: tf.math.divide_no_nan(*pair) for key, pair in metrics.items()}
    return {"loss": tf.math.divide_no_nan(loss, weight), "weight": weight, "metrics": means}


def total_results(towers: Sequence[TowerSums | Totals]) -> tuple[tf.Tensor, tf.Tensor, dict]:
    """Returns loss, weight and metrics summed over the towers."""
    parts = [(tower.loss, tower.weight, tower.metrics) for tower in towers]
    return add_in_pairs(functools.partial(tf.nest.map_structure, tf.add), parts)


def tower_results(
    towers: Sequence[TowerSums], devices: Sequence[str], norm: tf.Tensor | None
) -> TowerResults:
    """Returns each tower's means.

    Args:
        towers: what each hands back.
        devices: where their gradients are.
        norm: that of the averaged gradient if there is no other tower anywhere, else None.
    """
    each = [mean_results([tower]) for tower in towers]
    norms = list(map(own_norm, towers, devices)) if norm is None else [norm]
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

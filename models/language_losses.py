"""The loss of any language model on contiguous streams and on sentences, as tower functions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from towers.models.language_model import LanguageModel, State
from towers.models.linear_cross_entropy import linear_cross_entropy
from towers.models.losses import TowerFn

StatefulTowerFn = Callable[[Any, State], tuple[tf.Tensor, tf.Tensor, dict[str, tf.Tensor], State]]


def streams(model: LanguageModel, *, training: bool) -> StatefulTowerFn:
    """Returns `tower_fn((inputs, targets, starts), state) -> (loss_sum, weight, metrics, state)`.

    inputs and targets are int32 [batch, steps]; starts is bool [batch], True for rows whose state
    is reset to zero. The results are scalars, summed over the targets that are not padding:

    - loss_sum: cross-entropy, float32 or, of a float64 model, float64.
    - weight: number of these tokens.
    - metrics: `{"accuracy": number of them that were the most probable prediction}`.
    - state: for the next batch.

    Args:
        model: the model.
        training: whether dropout is on and gradients are computed.
    """

    def tower_fn(
        batch: Sequence[tf.Tensor], state: State
    ) -> tuple[tf.Tensor, tf.Tensor, dict[str, tf.Tensor], State]:
        inputs, targets, starts = batch
        state = tf.nest.map_structure(
            lambda part: tf.where(over_rows(starts, part), tf.zeros_like(part), part), state
        )
        hidden, state = model.hidden(inputs, state, training=training)
        return *token_sums(model, hidden, targets, training), state

    return tower_fn


def over_rows(starts: tf.Tensor, part: tf.Tensor) -> tf.Tensor:
    """Returns starts [batch] in a shape that broadcasts over a part of a state, [batch, ...]."""
    return tf.reshape(starts, [-1] + [1] * (part.shape.rank - 1))


def sentences(model: LanguageModel, *, training: bool) -> TowerFn:
    """Returns `tower_fn((inputs, targets)) -> (loss_sum, weight, metrics)`, as in `streams`.

    Each row is one example, int32 [batch, length], padded with `model.padding_id` at the end.
    """

    def tower_fn(batch: Sequence[tf.Tensor]) -> tuple[tf.Tensor, tf.Tensor, dict[str, tf.Tensor]]:
        inputs, targets = batch
        hidden, _ = model.hidden(inputs, training=training)
        return token_sums(model, hidden, targets, training)

    return tower_fn


def token_sums(
    model: LanguageModel, hidden: tf.Tensor, targets: tf.Tensor, training: bool
) -> tuple[tf.Tensor, tf.Tensor, dict[str, tf.Tensor]]:
    """Returns the summed loss, the number of targets that are not padding, and the metrics."""
    kernel, bias = model.kernel_and_bias()
    labels = tf.reshape(targets, [-1])
    dtype = tf.float64 if hidden.dtype == tf.float64 else tf.float32
    counted = tf.not_equal(labels, model.padding_id)
    weights = tf.cast(counted, dtype)
    sums = linear_cross_entropy(
        tf.reshape(hidden, [-1, model.hidden_size]),
        kernel,
        bias,
        labels,
        weights,
        training=training,
        counted=counted,
    )
    return sums.loss, tf.reduce_sum(weights), {"accuracy": sums.correct}

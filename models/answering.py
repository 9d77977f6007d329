"""The loss of a model that answers questions, as a tower function."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from towers.models.arguments import check_share
from towers.models.linear_cross_entropy import linear_cross_entropy
from towers.models.losses import TowerFn
from towers.models.seq2seq import Seq2Seq

PADDING, START, UNKNOWN = 0, 1, 3


def answering(model: Seq2Seq, *, training: bool, label_smoothing: float = 0.0) -> TowerFn:
    """Returns `tower_fn((question, answer)) -> (loss_sum, weight, metrics)`.

    Both are int32 [batch, length], padded with 0; an answer ends with its end token. What comes
    back are scalars, summed over the tokens of the answers that are neither padding nor unknown:
    an unknown token is never a target, so that the model never learns to say it.

    - loss_sum: cross-entropy, float32 or, of a float64 model, float64.
    - weight: how many tokens there were.
    - metrics: `{"accuracy": tokens that were the likeliest prediction}`.

    Args:
        model: the model.
        training: whether dropout is on and gradients are wanted.
        label_smoothing: share of each target that is spread over the vocabulary.
    """
    check_share(label_smoothing=label_smoothing)

    def tower_fn(shard: Any) -> tuple[tf.Tensor, tf.Tensor, dict[str, tf.Tensor]]:
        question, answer = shard
        hidden = model.hidden(question, decoder_inputs(answer), training=training)
        kernel, bias = model.projection.weights_and_bias()
        labels = tf.reshape(answer, [-1])
        counted = (labels != PADDING) & (labels != UNKNOWN)
        weights = tf.cast(counted, tf.float64 if hidden.dtype == tf.float64 else tf.float32)
        sums = linear_cross_entropy(
            tf.reshape(hidden, [-1, model.output_size]),
            kernel,
            bias,
            labels,
            weights,
            training=training,
            label_smoothing=label_smoothing,
        )
        return sums.loss, tf.reduce_sum(weights), {"accuracy": sums.correct}

    return tower_fn


def decoder_inputs(answer: tf.Tensor) -> tf.Tensor:
    """Returns what the decoder reads to predict an answer: START, then all but its last token."""
    return tf.concat([tf.fill(tf.stack([tf.shape(answer)[0], 1]), START), answer[:, :-1]], 1)

"""The losses of classifiers, as tower functions that return sums over a shard."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from towers.models.arguments import check_share
from towers.models.linear_cross_entropy import may_run_on_gpu

TowerFn = Callable[[Any], tuple[tf.Tensor, tf.Tensor, dict[str, tf.Tensor]]]


def classification(model: keras.Model, *, training: bool, label_smoothing: float = 0.0) -> TowerFn:
    """Returns `tower_fn(shard) -> (loss_sum, weight, metrics)` of a classifier.

    The shard is `(images, labels)` or `(images, labels, sample_weights)` with labels: int [batch]
    and sample_weights: float [batch], 0 for an example that does not count. The results are
    scalars, float32, or float64 for a float64 model:

    - loss_sum: softmax cross-entropy summed over the examples, each times its sample weight;
      in training also `weight * sum(model.losses)`, so that the regularisers keep their strength
      after the division by the weight.
    - weight: the number of examples, or the sum of their weights.
    - metrics: `{"accuracy": sum of the weights of correctly classified examples}`.

    Args:
        model: maps images to logits, floating point [batch, num_classes].
        training: whether the model runs in training mode, with its regularisers.
        label_smoothing: share of each label that is spread evenly over all classes.
    """
    check_share(label_smoothing=label_smoothing)

    def tower_fn(shard: Any) -> tuple[tf.Tensor, tf.Tensor, dict[str, tf.Tensor]]:
        images, labels, *sample_weights = shard
        labels = tf.cast(labels, tf.int32)
        logits = at_least_float32(model(images, training=training))
        weights = example_weights(labels, logits, *sample_weights)
        losses = cross_entropy(logits, labels, label_smoothing=label_smoothing)
        # Of int64: GPUs have no kernel that compares int32.
        correct = tf.equal(tf.argmax(logits, -1), tf.cast(labels, tf.int64))
        loss_sum, weight = tf.reduce_sum(losses * weights), tf.reduce_sum(weights)
        if training:
            loss_sum += weight * regularisation(model, loss_sum.dtype)
        return (
            loss_sum,
            weight,
            {"accuracy": tf.reduce_sum(tf.cast(correct, weights.dtype) * weights)},
        )

    return tower_fn


def at_least_float32(logits: tf.Tensor) -> tf.Tensor:
    """Returns the logits in float32, or in float64 if they are float64."""
    return tf.cast(logits, tf.float64 if logits.dtype == tf.float64 else tf.float32)


def example_weights(
    labels: tf.Tensor, logits: tf.Tensor, sample_weights: tf.Tensor | None = None
) -> tf.Tensor:
    """Returns the weight of each example, [batch] in the dtype of the logits.

    Raises:
        ValueError: the shapes do not match example by example.
    """
    if labels.shape.rank != 1 or logits.shape.rank != 2:
        raise ValueError(
            "A classifier needs labels [batch] and logits [batch, num_classes]. Received labels "
            f"of shape {labels.shape} and logits of shape {logits.shape}; drop extra dimensions, "
            "and give classes as whole numbers instead of one-hot rows."
        )
    if sample_weights is None:
        return tf.ones_like(labels, logits.dtype)
    sample_weights = tf.cast(sample_weights, logits.dtype)
    if sample_weights.shape.rank != 1:
        raise ValueError(
            "sample_weights must be [batch], one for each example. Received the shape "
            f"{sample_weights.shape}; drop the extra dimensions."
        )
    return sample_weights


def cross_entropy(
    logits: tf.Tensor, labels: tf.Tensor, *, label_smoothing: float = 0.0
) -> tf.Tensor:
    """Returns the softmax cross-entropy of each prediction, in the shape of `labels`.

    With label smoothing the target is `(1 - s) * one_hot(label) + s / num_classes` (Szegedy et
    al. 2016, "Rethinking the Inception Architecture for Computer Vision", section 7).

    Args:
        logits: floating point [..., num_classes].
        labels: int [...], each in 0..num_classes - 1.
        label_smoothing: s.
    """
    if logits.dtype == tf.float64 and may_run_on_gpu(logits):  # They have no kernel for it.
        log_softmax = tf.nn.log_softmax(logits)
        losses = -tf.gather(log_softmax, labels, batch_dims=labels.shape.rank)
    else:
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
    if not label_smoothing:
        return losses
    to_even = -tf.reduce_mean(tf.nn.log_softmax(logits), axis=-1)
    return (1 - label_smoothing) * losses + label_smoothing * to_even


def regularisation(model: keras.Model, dtype: tf.DType) -> tf.Tensor:
    """Returns the sum of the model's regularisation losses, a scalar; 0 if it has none."""
    return tf.add_n([tf.zeros([], dtype), *(tf.cast(loss, dtype) for loss in model.losses)])

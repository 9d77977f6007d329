"""The losses of classifiers, as tower functions that return sums over a shard."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from towers.ground.arguments import check_fraction
from towers.models.linear_cross_entropy import may_run_on_gpu
from towers.models.precision import at_least_float32

TowerFn = Callable[[Any], tuple[tf.Tensor, tf.Tensor, dict[str, tf.Tensor]]]
Measured = tuple[tf.Tensor, tf.Tensor, tf.Tensor]


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
        label_smoothing: fraction of each label that is spread evenly over all classes.
    """
    check_fraction(label_smoothing=label_smoothing)

    def measure(logits: tf.Tensor, labels: tf.Tensor, *sample_weights: tf.Tensor) -> Measured:
        labels = tf.cast(labels, tf.int32)
        weights = example_weights(labels, logits, *sample_weights)
        losses = cross_entropy(logits, labels, label_smoothing=label_smoothing)
        # In int64: GPUs have no kernel that compares int32.
        correct = tf.equal(tf.argmax(logits, -1), tf.cast(labels, tf.int64))
        return losses * weights, weights, tf.cast(correct, weights.dtype) * weights

    return tower_function(model, training, measure)


def soft_classification(
    model: keras.Model, *, training: bool, label_smoothing: float = 0.0
) -> TowerFn:
    """Returns the tower function of a classifier whose labels are fractions of the classes.

    As `classification`, for labels float [batch, num_classes] whose rows sum to 1, such as
    mixup makes them: the loss is softmax cross-entropy, and an example is classified correctly if
    its most probable class is that of the largest fraction.
    """
    check_fraction(label_smoothing=label_smoothing)

    def measure(logits: tf.Tensor, labels: tf.Tensor) -> Measured:
        labels = class_rows(labels, logits)
        correct = tf.equal(tf.argmax(logits, -1), tf.argmax(labels, -1))
        num_classes = tf.cast(tf.shape(labels)[-1], labels.dtype)
        smoothed = (1 - label_smoothing) * labels + label_smoothing / num_classes
        losses = tf.nn.softmax_cross_entropy_with_logits(smoothed, logits)
        return losses, tf.ones_like(losses), tf.cast(correct, losses.dtype)

    return tower_function(model, training, measure)


def several_labels(model: keras.Model, *, training: bool, label_smoothing: float = 0.0) -> TowerFn:
    """Returns the tower function of a classifier whose examples have any number of labels.

    The labels are float [batch, num_classes], 1 for each that holds. The loss of an example is the
    sigmoid cross-entropy summed over the classes; `accuracy` is the fraction of the classes that
    are on the right side of one half.

    Arguments as in `classification`; labels are smoothed towards one half.
    """
    check_fraction(label_smoothing=label_smoothing)

    def measure(logits: tf.Tensor, labels: tf.Tensor) -> Measured:
        labels = class_rows(labels, logits)
        correct = tf.equal(logits > 0, labels > 0.5)
        smoothed = (1 - label_smoothing) * labels + label_smoothing / 2
        losses = tf.reduce_sum(tf.nn.sigmoid_cross_entropy_with_logits(smoothed, logits), -1)
        return losses, tf.ones_like(losses), tf.reduce_mean(tf.cast(correct, logits.dtype), -1)

    return tower_function(model, training, measure)


def tower_function(model: keras.Model, training: bool, measure: Callable[..., Measured]) -> TowerFn:
    """Returns the tower function of a classifier.

    Args:
        model: maps images to logits.
        training: whether the model runs in training mode, with its regularisers.
        measure: from the logits, and what follows the images in a shard, to the loss, the weight
            and the accuracy of each example, [batch] each; both times the weight.
    """

    def tower_fn(shard: Any) -> tuple[tf.Tensor, tf.Tensor, dict[str, tf.Tensor]]:
        images, *targets = shard
        logits = at_least_float32(model(images, training=training))
        with tf.name_scope("loss"):
            loss_sum, weight, correct = map(tf.reduce_sum, measure(logits, *targets))
            if training:
                loss_sum += weight * regularisation(model, loss_sum.dtype)
        return loss_sum, weight, {"accuracy": correct}

    return tower_fn


def regularisation(model: keras.Model, dtype: tf.DType) -> tf.Tensor:
    """Returns the sum of the model's regularisation losses, a scalar; 0 if it has none."""
    return tf.add_n([tf.zeros([], dtype), *(tf.cast(loss, dtype) for loss in model.losses)])


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
            "and give classes as integers instead of one-hot rows."
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


def class_rows(labels: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
    """Returns labels in the dtype of the logits; ValueError unless each class has a number."""
    if labels.shape.rank != 2 or not labels.shape.is_compatible_with(logits.shape):
        raise ValueError(
            "labels must be [batch, num_classes], like the logits. Received labels of shape "
            f"{labels.shape} and logits of shape {logits.shape}; for integer labels, use "
            "losses.classification."
        )
    return tf.cast(labels, logits.dtype)

"""The losses of classifiers whose labels are rows of numbers: shares of classes, or several."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from towers.models.arguments import check_share
from towers.models.losses import TowerFn, at_least_float32, regularisation


def soft_classification(
    model: keras.Model, *, training: bool, label_smoothing: float = 0.0
) -> TowerFn:
    """Returns the tower function of a classifier whose labels are shares of the classes.

    As `losses.classification` for labels float [batch, num_classes] whose rows sum to 1, such as
    mixup makes them: the loss is softmax cross-entropy, and an example is classified correctly if
    its most probable class is that of the largest share.

    Args:
        model: maps images to logits, floating point [batch, num_classes].
        training: whether the model runs in training mode, with its regularisers.
        label_smoothing: share of each label that is spread evenly over all classes.
    """
    check_share(label_smoothing=label_smoothing)

    def measure(logits: tf.Tensor, labels: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        correct = tf.equal(tf.argmax(logits, -1), tf.argmax(labels, -1))
        num_classes = tf.cast(tf.shape(labels)[-1], labels.dtype)
        smoothed = (1 - label_smoothing) * labels + label_smoothing / num_classes
        return tf.nn.softmax_cross_entropy_with_logits(smoothed, logits), correct

    return tower_function(model, training, measure)


def several_labels(model: keras.Model, *, training: bool, label_smoothing: float = 0.0) -> TowerFn:
    """Returns the tower function of a classifier whose examples have any number of labels.

    The labels are float [batch, num_classes], 1 for each that holds. The loss of an example is the
    sigmoid cross-entropy summed over the classes; `accuracy` is the share of the classes that are
    on the right side of one half.

    Args:
        model: maps images to logits, floating point [batch, num_classes].
        training: whether the model runs in training mode, with its regularisers.
        label_smoothing: share of each label that is moved towards one half.
    """
    check_share(label_smoothing=label_smoothing)

    def measure(logits: tf.Tensor, labels: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        correct = tf.equal(logits > 0, labels > 0.5)
        smoothed = (1 - label_smoothing) * labels + label_smoothing / 2
        losses = tf.nn.sigmoid_cross_entropy_with_logits(smoothed, logits)
        return tf.reduce_sum(losses, -1), tf.reduce_mean(tf.cast(correct, logits.dtype), -1)

    return tower_function(model, training, measure)


def tower_function(
    model: keras.Model,
    training: bool,
    measure: Callable[[tf.Tensor, tf.Tensor], tuple[tf.Tensor, tf.Tensor]],
) -> TowerFn:
    """Returns the tower function of a measure: (logits, labels) to losses and hits, [batch]."""

    def tower_fn(shard: Any) -> tuple[tf.Tensor, tf.Tensor, dict[str, tf.Tensor]]:
        images, labels = shard
        logits = at_least_float32(model(images, training=training))
        check_labels(labels, logits)
        losses, hits = measure(logits, tf.cast(labels, logits.dtype))
        weight = tf.reduce_sum(tf.ones_like(losses))
        loss_sum = tf.reduce_sum(losses)
        if training:
            loss_sum += weight * regularisation(model, loss_sum.dtype)
        return loss_sum, weight, {"accuracy": tf.reduce_sum(tf.cast(hits, losses.dtype))}

    return tower_fn


def check_labels(labels: tf.Tensor, logits: tf.Tensor) -> None:
    """Raises ValueError unless the labels have a number for each class."""
    if labels.shape.rank != 2 or not labels.shape.is_compatible_with(logits.shape):
        raise ValueError(
            "labels must be [batch, num_classes], as the logits. Received labels of shape "
            f"{labels.shape} and logits of shape {logits.shape}; whole numbers of classes take "
            "losses.classification."
        )

"""What a member of the zoo is: a Keras model, the loss of each example, and data."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

Batch = dict[str, np.ndarray]


class Member(NamedTuple):
    """One model of the zoo.

    Attributes:
        make_model: returns the model; Keras's dtype policy and seed are set before.
        make_batch: `make_batch(random, rows)` returns arrays that have this many rows.
        losses: `losses(model, batch)` returns the loss of each example, float [rows].
    """

    make_model: Callable[[], keras.Model]
    make_batch: Callable[[np.random.Generator, int], Batch]
    losses: Callable[[keras.Model, dict[str, tf.Tensor]], Any]

    def tower_fn(self, model: keras.Model) -> Callable[[dict[str, tf.Tensor]], Any]:
        """Returns the tower function: the losses' sum, their number, and the regularisers."""

        def run(batch: dict[str, tf.Tensor]) -> tuple[Any, Any, dict[str, Any]]:
            losses = self.losses(model, batch)
            weight = tf.cast(tf.shape(losses)[0], losses.dtype)
            return tf.reduce_sum(losses) + weight * sum(model.losses), weight, {}

        return run


def classified(model: keras.Model, batch: dict[str, tf.Tensor]) -> tf.Tensor:
    """Cross-entropy of `x` with the label `y`, by logits."""
    return keras.losses.sparse_categorical_crossentropy(
        batch["y"], model(batch["x"], training=False), from_logits=True
    )


def each_position_classified(model: keras.Model, batch: dict[str, tf.Tensor]) -> tf.Tensor:
    """The mean cross-entropy over all positions of an example."""
    losses = classified(model, batch)
    return tf.reduce_mean(tf.reshape(losses, [tf.shape(losses)[0], -1]), -1)


def regressed(model: keras.Model, batch: dict[str, tf.Tensor]) -> tf.Tensor:
    """Mean squared error of each example."""
    errors = tf.square(batch["y"] - model(batch["x"], training=False))
    return tf.reduce_mean(tf.reshape(errors, [tf.shape(errors)[0], -1]), -1)


def pictures(size: int, channels: int = 3, classes: int = 4) -> Callable[..., Batch]:
    """Data: pictures [rows, size, size, channels] and labels."""
    return lambda random, rows: {
        "x": random.normal(size=(rows, size, size, channels)),
        "y": random.integers(0, classes, rows),
    }


def tokens(length: int, vocabulary: int, classes: int | None = None) -> Callable[..., Batch]:
    """Data: token ids [rows, length]; labels per example, or the next token of each."""

    def make(random: np.random.Generator, rows: int) -> Batch:
        ids = random.integers(1, vocabulary, (rows, length + 1)).astype("int32")
        labels = ids[:, 1:] if classes is None else random.integers(0, classes, rows)
        return {"x": ids[:, :-1], "y": labels}

    return make


def series(length: int, width: int, outputs: tuple[int, ...] = (1,)) -> Callable[..., Batch]:
    """Data: series [rows, length, width] and the values to predict."""
    return lambda random, rows: {
        "x": random.normal(size=(rows, length, width)),
        "y": random.normal(size=(rows, *outputs)),
    }

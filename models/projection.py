"""The output projection of a text model: from its last hidden vectors to the logits."""

from __future__ import annotations

from typing import Any

import tensorflow as tf
from keras import layers

from towers.models.embedding import Embedding


class Projection(layers.Layer):
    """The output projection, with one row of weights for each token of the vocabulary.

    Args:
        vocabulary_size: number of rows.
        size: length of a row.
        table: an embedding whose table is the weights, or None for separate weights.
        options: of every Keras layer.
    """

    def __init__(self, vocabulary_size: int, size: int, table: Embedding | None, **options: Any):
        super().__init__(**options)
        self.vocabulary_size = vocabulary_size
        self.size = size
        self._embedding = table

    def build(self, input_shape: Any = None) -> None:
        """Creates the variables."""
        if self._embedding is None:
            self.kernel = self.add_weight(
                shape=(self.vocabulary_size, self.size),
                initializer="glorot_uniform",
                name="kernel",
            )
        self.bias = self.add_weight(shape=(self.vocabulary_size,), initializer="zeros", name="bias")

    def weights_and_bias(self) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns the weights, [vocabulary, size], and the bias, [vocabulary]."""
        kernel = self.kernel if self._embedding is None else self._embedding.table
        dtype = self.compute_dtype
        return tf.cast(kernel.value, dtype), tf.cast(self.bias.value, dtype)

    def call(self, hidden: tf.Tensor) -> tf.Tensor:
        """Returns the logits, [..., vocabulary], in at least float32."""
        kernel, bias = self.weights_and_bias()
        flat = tf.reshape(hidden, [-1, self.size])
        logits = tf.matmul(flat, kernel, transpose_b=True) + bias
        logits = tf.cast(logits, tf.float64 if logits.dtype == tf.float64 else tf.float32)
        return tf.reshape(logits, tf.concat([tf.shape(hidden)[:-1], [self.vocabulary_size]], 0))

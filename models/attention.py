"""Attention of a decoder over what an encoder has read."""

from __future__ import annotations

from typing import Any, NamedTuple

import keras
import tensorflow as tf
from keras import layers

KINDS = ("luong", "luong_scaled", "bahdanau")


class Memory(NamedTuple):
    """What is attended to.

    Attributes:
        values: [batch, question_length, units], the encoder's outputs.
        keys: [batch, question_length, units], the values as the scores need them.
        mask: bool [batch, question_length], False at padding.
    """

    values: tf.Tensor
    keys: tf.Tensor
    mask: tf.Tensor


@keras.saving.register_keras_serializable(package="towers")
class Attention(layers.Layer):
    """Scores each position of the memory against a query and averages the values by them.

    The scores of a query q and a value v, softmax over the positions that are no padding:

    - `luong`: q^T W v, "general" of Luong et al. 2015, section 3.1.
    - `luong_scaled`: g * q^T W v with a learned scalar g, which begins at 1.
    - `bahdanau`: u^T tanh(W v + Q q), Bahdanau et al. 2015, section A.1.2.

    Args:
        kind: one of these.
        units: of queries, keys and values.
        options: those of every Keras layer.
    """

    def __init__(self, kind: str, units: int, **options: Any):
        super().__init__(**options)
        if kind not in KINDS:
            raise ValueError(f"attention must be one of {', '.join(KINDS)}. Received {kind!r}.")
        self.kind = kind
        self.units = units
        self.key = layers.Dense(units, use_bias=False, dtype=self.dtype_policy, name="key")
        self.query = None
        if kind == "bahdanau":
            self.query = layers.Dense(units, use_bias=False, dtype=self.dtype_policy, name="query")

    def build(self, input_shape: Any = None) -> None:
        """Makes the variables."""
        self.key.build((None, None, self.units))
        if self.kind == "luong_scaled":
            self.scale = self.add_weight(shape=(), initializer="ones", name="scale")
        if self.query is not None:
            self.query.build((None, None, self.units))
            self.direction = self.add_weight(
                shape=(self.units, 1), initializer="glorot_uniform", name="direction"
            )
        self.built = True

    def remember(self, values: tf.Tensor, mask: tf.Tensor) -> Memory:
        """Returns the memory of an encoder's outputs, [batch, question_length, units]."""
        return Memory(values, self.key(values), mask)

    def call(self, queries: tf.Tensor, memory: Memory) -> tf.Tensor:
        """Returns the context of each query, [batch, num_queries, units]."""
        shares = tf.cast(self.shares(queries, memory), memory.values.dtype)
        return tf.matmul(shares, memory.values)

    def shares(self, queries: tf.Tensor, memory: Memory) -> tf.Tensor:
        """Returns the weight of each position, [batch, num_queries, question_length]; sums to 1."""
        scores = self._scores(queries, memory)
        scores = tf.cast(scores, tf.float64 if scores.dtype == tf.float64 else tf.float32)
        hidden = tf.fill(tf.shape(scores), scores.dtype.min / 2)
        return tf.nn.softmax(tf.where(memory.mask[:, None, :], scores, hidden))

    def _scores(self, queries: tf.Tensor, memory: Memory) -> tf.Tensor:
        if self.query is not None:
            sums = memory.keys[:, None, :, :] + self.query(queries)[:, :, None, :]
            direction = tf.cast(self.direction.value, sums.dtype)
            return tf.squeeze(tf.tensordot(tf.tanh(sums), direction, 1), -1)
        scores = tf.matmul(queries, memory.keys, transpose_b=True)
        if self.kind == "luong_scaled":
            scores *= tf.cast(self.scale.value, scores.dtype)
        return scores

    def get_config(self) -> dict[str, Any]:
        """Returns what the layer can be made again from."""
        return {**super().get_config(), "kind": self.kind, "units": self.units}

"""Attention of a decoder over the outputs of an encoder."""

from __future__ import annotations

from typing import Any, NamedTuple

import keras
import tensorflow as tf
from keras import layers

from towers.ground.arguments import check_choice
from towers.models.precision import at_least_float32
from towers.models.text_layers import Dense

KINDS = ("luong", "luong_scaled", "bahdanau")


class Memory(NamedTuple):
    """The encoder's outputs, as attention reads them.

    Attributes:
        values: [batch, question_length, units], the encoder's outputs.
        keys: [batch, question_length, units], the values projected for the scores.
        mask: bool [batch, question_length], False at padding.
    """

    values: tf.Tensor
    keys: tf.Tensor
    mask: tf.Tensor


@keras.saving.register_keras_serializable(package="towers")
class Attention(layers.Layer):
    """Scores each position of the memory against a query and averages the values by them.

    The scores of a query q and a value v, before a softmax over the positions without padding:

    - `luong`: q^T W v, "general" of Luong et al. 2015, section 3.1.
    - `luong_scaled`: g * q^T W v with a learned scalar g, initially 1.
    - `bahdanau`: u^T tanh(W v + Q q), Bahdanau et al. 2015, section A.1.2.

    Args:
        kind: luong, luong_scaled or bahdanau.
        units: size of queries, keys and values.
    """

    def __init__(self, kind: str, units: int, **options: Any):
        super().__init__(**options)
        check_choice("attention", kind, KINDS)
        self.kind = kind
        self.units = units
        self.key = Dense(units, use_bias=False, dtype=self.dtype_policy, name="key")
        self.query = None
        if kind == "bahdanau":
            self.query = Dense(units, use_bias=False, dtype=self.dtype_policy, name="query")

    def build(self, input_shape: Any = None) -> None:
        """Creates the variables."""
        self.key.build((None, None, self.units))
        if self.kind == "luong_scaled":
            self.scale = self.add_weight(shape=(), initializer="ones", name="scale")
        if self.query is not None:
            self.query.build((None, None, self.units))
            self.direction = self.add_weight(
                shape=(self.units, 1), initializer="glorot_uniform", name="direction"
            )

    def remember(self, values: tf.Tensor, mask: tf.Tensor) -> Memory:
        """Returns the memory of an encoder's outputs, [batch, question_length, units]."""
        return Memory(values, self.key(values), mask)

    def call(self, queries: tf.Tensor, memory: Memory) -> tf.Tensor:
        """Returns the context of each query, [batch, num_queries, units]."""
        weights = tf.cast(self.weights_of(queries, memory), memory.values.dtype)
        return tf.matmul(weights, memory.values)

    def weights_of(self, queries: tf.Tensor, memory: Memory) -> tf.Tensor:
        """Returns the attention weights, [batch, num_queries, question_length], with sum 1."""
        scores = at_least_float32(self._scores(queries, memory))
        hidden = tf.fill(tf.shape(scores), scores.dtype.min / 2)
        return tf.nn.softmax(tf.where(memory.mask[:, None, :], scores, hidden))

    def _scores(self, queries: tf.Tensor, memory: Memory) -> tf.Tensor:
        if self.query is not None:
            asked = self.query(queries)[:, :, None, :]
            sums = tf.tanh(memory.keys[:, None, :, :] + asked)
            direction = tf.cast(self.direction.value, sums.dtype)
            scores = tf.matmul(tf.reshape(sums, [-1, self.units]), direction)
            return tf.reshape(scores, tf.shape(sums)[:-1])
        scores = tf.matmul(queries, memory.keys, transpose_b=True)
        if self.kind == "luong_scaled":
            scores *= tf.cast(self.scale.value, scores.dtype)
        return scores

    def get_config(self) -> dict[str, Any]:
        """Returns the arguments of the constructor."""
        return {**super().get_config(), "kind": self.kind, "units": self.units}

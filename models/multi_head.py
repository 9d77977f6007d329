"""Multi-head attention with rotary positions, over whole sequences or token by token."""

from __future__ import annotations

from typing import Any, NamedTuple

import tensorflow as tf
from keras import layers

from towers.ground.arguments import check_at_least
from towers.models.precision import at_least_float32, wide_dtype
from towers.models.text_layers import Dense

ROTARY_BASE = 10_000.0  # Su et al. 2021, section 3.2.2, as Vaswani et al. 2017.


class KeysAndValues(NamedTuple):
    """What queries attend to: keys and values, [batch, heads, length, head size] each."""

    keys: tf.Tensor
    values: tf.Tensor


class MultiHeadAttention(layers.Layer):
    """Scaled dot-product attention of several heads (Vaswani et al. 2017, section 3.2.2).

    With `rotary`, queries and keys are rotated by their positions (Su et al. 2021, "RoFormer"), so
    that scores depend on distances; the values are not.

    Args:
        size: of the inputs and outputs, a multiple of `heads`; of each head even with `rotary`.
        heads: number of heads.
        rotary: whether positions count.
        key_value_heads: number of heads of the keys and values; by default as many.
        options: of every Keras layer.
    """

    def __init__(
        self,
        size: int,
        heads: int,
        *,
        rotary: bool,
        key_value_heads: int | None = None,
        **options: Any,
    ):
        super().__init__(**options)
        check_at_least(1, size=size, heads=heads)
        if size % heads or (rotary and size // heads % 2):
            raise ValueError(
                f"size must be {'an even' if rotary else 'a'} multiple of heads. Received "
                f"size={size} and heads={heads}."
            )
        self.size = size
        self.rotary = rotary
        self.head_size = size // heads
        self.memory_size = (key_value_heads or heads) * self.head_size
        units = {"query": size, "key": self.memory_size, "value": self.memory_size, "output": size}
        self.query, self.key, self.value, self.output_layer = (
            Dense(own, use_bias=False, dtype=self.dtype_policy, name=name)
            for name, own in units.items()
        )

    def build(self, input_shape: Any = None) -> None:
        """Creates the variables."""
        for layer in (self.query, self.key, self.value, self.output_layer):
            layer.build((None, None, self.size))

    def remember(self, inputs: tf.Tensor, first: int | tf.Tensor = 0) -> KeysAndValues:
        """Returns the keys and values of inputs [batch, length, size], from position `first` on."""
        keys, values = self._in_heads(self.key(inputs)), self._in_heads(self.value(inputs))
        return KeysAndValues(rotate(keys, first) if self.rotary else keys, values)

    def call(
        self,
        inputs: tf.Tensor,
        memory: KeysAndValues,
        visible: tf.Tensor | None = None,
        first: int | tf.Tensor = 0,
    ) -> tf.Tensor:
        """Returns the attention of inputs [batch, length, size] to a memory, in the same shape.

        Args:
            inputs: the queries' sequence, from position `first` on.
            memory: of `remember`.
            visible: bool, broadcast to [batch, heads, length, memory length]; False hides.
            first: position of the first input.
        """
        weights = self.weights_of(inputs, memory, visible, first)
        weights = tf.cast(weights, memory.values.dtype)
        attended = tf.transpose(tf.matmul(weights, memory.values), [0, 2, 1, 3])
        return self.output_layer(tf.reshape(attended, tf.shape(inputs)))

    def weights_of(
        self,
        inputs: tf.Tensor,
        memory: KeysAndValues,
        visible: tf.Tensor | None = None,
        first: int | tf.Tensor = 0,
    ) -> tf.Tensor:
        """Returns softmax(q k^T / sqrt(head size)), in at least float32; arguments as in `call`.

        It is [batch, heads, length, memory length].
        """
        queries = self._in_heads(self.query(inputs))
        queries = rotate(queries, first) if self.rotary else queries
        return softmax_of_scores(queries, memory.keys, visible)

    def _in_heads(self, inputs: tf.Tensor) -> tf.Tensor:
        """Returns [batch, heads, length, head size], from inputs [batch, length, size]."""
        batch, length = tf.unstack(tf.shape(inputs)[:2])
        shape = tf.stack([batch, length, inputs.shape[-1] // self.head_size, self.head_size])
        return tf.transpose(tf.reshape(inputs, shape), [0, 2, 1, 3])


def softmax_of_scores(
    queries: tf.Tensor, keys: tf.Tensor, visible: tf.Tensor | None = None
) -> tf.Tensor:
    """Returns softmax(q k^T / sqrt(head size)), in at least float32: [..., length, keys].

    Args:
        queries, keys: [..., length or number of keys, head size].
        visible: bool, broadcast to the result; False hides.
    """
    scores = at_least_float32(tf.matmul(queries, keys, transpose_b=True))
    scores *= keys.shape[-1] ** -0.5
    if visible is not None:
        scores = tf.where(visible, scores, tf.constant(scores.dtype.min / 2, scores.dtype))
    return tf.nn.softmax(scores)


def rotate(inputs: tf.Tensor, first: int | tf.Tensor = 0) -> tf.Tensor:
    """Returns each pair of numbers rotated by an angle that grows with the position.

    Number i of the first half is paired with number i of the second half; the angle at position p
    is p * 10000^(-2i / head size).

    Args:
        inputs: [batch, heads, length, head size].
        first: position of the first vector.
    """
    half = inputs.shape[-1] // 2
    wide = wide_dtype(inputs.dtype)  # In 16 bits a large angle would be off by a radian.
    positions = tf.cast(first + tf.range(tf.shape(inputs)[2]), wide)
    exponents = tf.cast(tf.range(half), tf.float64) / half
    frequencies = tf.cast(ROTARY_BASE**-exponents, wide)
    angles = positions[:, None] * frequencies
    cosines, sines = (tf.cast(wave(angles), inputs.dtype) for wave in (tf.cos, tf.sin))
    one, other = inputs[..., :half], inputs[..., half:]
    return tf.concat([one * cosines - other * sines, one * sines + other * cosines], -1)

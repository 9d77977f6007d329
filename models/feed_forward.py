"""The feed-forward parts of Transformers: two dense layers, for each place by itself."""

from __future__ import annotations

from typing import Any

import tensorflow as tf
from keras import layers

from towers.models.dense import Dense


class FeedForward(layers.Layer):
    """Two dense layers with GELU between them (Hendrycks and Gimpel 2016).

    Args:
        size: of the inputs and outputs.
        hidden_size: units between the two.
        options: of every Keras layer.
    """

    def __init__(self, size: int, hidden_size: int, **options: Any):
        super().__init__(**options)
        self.size = size
        self.inner = Dense(hidden_size, activation="gelu", dtype=self.dtype_policy, name="inner")
        self.outer = Dense(size, dtype=self.dtype_policy, name="outer")

    def build(self, input_shape: Any = None) -> None:
        """Creates the variables."""
        self.inner.build((None, None, self.size))
        self.outer.build((None, None, self.inner.units))
        self.built = True

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        """Returns outputs in the shape of the inputs, [..., size]."""
        return self.outer(self.inner(inputs))


class GatedFeedForward(layers.Layer):
    """Two dense layers with a gate between them: `outer(silu(gate(x)) * inner(x))`, no biases.

    Args:
        size: of the inputs and outputs.
        hidden_size: units between the two.
        options: of every Keras layer.
    """

    def __init__(self, size: int, hidden_size: int, **options: Any):
        super().__init__(**options)
        self.size = size
        dense: dict[str, Any] = {"use_bias": False, "dtype": self.dtype_policy}
        self.gate = Dense(hidden_size, activation="silu", name="gate", **dense)
        self.inner = Dense(hidden_size, name="inner", **dense)
        self.outer = Dense(size, name="outer", **dense)

    def build(self, input_shape: Any = None) -> None:
        """Creates the variables."""
        for layer in (self.gate, self.inner):
            layer.build((None, None, self.size))
        self.outer.build((None, None, self.inner.units))
        self.built = True

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        """Returns outputs in the shape of the inputs, [..., size]."""
        return self.outer(self.gate(inputs) * self.inner(inputs))


FEED_FORWARDS: dict[str, Any] = {"gelu": FeedForward, "swiglu": GatedFeedForward}

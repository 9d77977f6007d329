"""A dense layer of sequences, as one product of matrices."""

from __future__ import annotations

from typing import Any

import tensorflow as tf
from keras import layers


class Dense(layers.Dense):
    """Keras's layer, for inputs of any rank and batches of any size.

    Keras takes `tensordot` for more than two dimensions. Of a batch of unknown size it computes
    shapes on the GPU while the host waits, and XLA cannot differentiate it in a loop.
    """

    def call(self, inputs: tf.Tensor, training: Any = None) -> tf.Tensor:
        """Returns activation(inputs @ kernel + bias), [..., units], of inputs [..., size]."""
        shape = inputs.shape[:-1].as_list()
        if len(shape) == 1:
            return super().call(inputs, training=training)
        rows = super().call(tf.reshape(inputs, [-1, inputs.shape[-1]]), training=training)
        if shape.count(None) > 1:
            return tf.reshape(rows, tf.concat([tf.shape(inputs)[:-1], [self.units]], 0))
        return tf.reshape(rows, [-1 if side is None else side for side in shape] + [self.units])

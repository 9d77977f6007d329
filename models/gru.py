"""A GRU layer whose loop holds no product that could be one of all tokens."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import tensorflow as tf
from keras import layers

from towers.models.hoisted_products import (
    HoistedProducts,
    empty,
    gradient_of_weights,
    unstacked,
    with_own_gradient,
)

GATES = 3  # In Keras's order: update, reset, candidate.


class GRU(layers.GRU, HoistedProducts):
    """Keras's layer with its fused kernel on GPUs, and `HoistedProducts` elsewhere."""

    @property
    def input_bias(self) -> tf.Tensor:
        """The bias of the products with the kernel, [3 units]."""
        return tf.convert_to_tensor(self.cell.bias)[0]

    def is_plain(self) -> bool:
        """Returns whether the layer is what `over_tokens` computes."""
        return super().is_plain() and self.cell.reset_after

    def over_tokens(self, products: tf.Tensor, states: Sequence[tf.Tensor]) -> Sequence[tf.Tensor]:
        """Returns the outputs, and the last one."""
        recurrent_kernel = tf.convert_to_tensor(self.cell.recurrent_kernel)
        return recurrence(
            products, recurrent_kernel, tf.convert_to_tensor(self.cell.bias)[1], *states
        )


@with_own_gradient
def recurrence(
    products: tf.Tensor, recurrent_kernel: tf.Tensor, recurrent_bias: tf.Tensor, h: tf.Tensor
) -> tuple[tuple[tf.Tensor, tf.Tensor], Callable[..., tuple[tf.Tensor, ...]]]:
    """Returns the outputs of a GRU, and the last one.

    Cho et al. 2014, "Learning Phrase Representations using RNN Encoder-Decoder", with the reset
    gate after the recurrent product, as cuDNN has it.

    Args:
        products: the inputs times the kernel, plus the bias: [length, batch, 3 units].
        recurrent_kernel: [units, 3 units].
        recurrent_bias: [3 units].
        h: output before the first token, [batch, units].
    """
    length, units = tf.shape(products)[0], recurrent_kernel.shape[0]
    tokens = unstacked(products)

    def step(index: tf.Tensor, h: tf.Tensor, *written: tf.TensorArray) -> Sequence:
        m = tf.matmul(h, recurrent_kernel) + recurrent_bias
        x, m_gates, m_g = tokens.read(index), m[:, : 2 * units], m[:, 2 * units :]
        both = tf.sigmoid(x[:, : 2 * units] + m_gates)
        z, r = tf.split(both, 2, axis=-1)
        g = tf.tanh(x[:, 2 * units :] + r * m_g)
        h = z * h + (1 - z) * g
        values = zip(written, (tf.concat([both, g, m_g], -1), h), strict=True)
        return [index + 1, h, *(array.write(index, value) for array, value in values)]

    start = [tf.constant(0), h, empty(products, 4 * units), empty(products, units)]
    _, last_h, *written = tf.while_loop(lambda index, *_: index < length, step, start)
    kept, outputs = (array.stack() for array in written)

    def gradient(d_outputs: tf.Tensor, d_last_h: tf.Tensor) -> tuple[tf.Tensor, ...]:
        before_h = tf.concat([h[None], outputs[:-1]], 0)
        z, r, g, m_g = tf.split(kept, 4, axis=-1)
        # What a token's gradient of h is multiplied by, in the gradients of its products.
        of_z, of_g = (before_h - g) * z * (1 - z), (1 - z) * (1 - g * g)
        of_r = of_g * m_g * r * (1 - r)
        of_m = tf.concat([of_z, of_r, of_g * r], -1)
        h_to_m, h_to_h, d_tokens = unstacked(of_m), unstacked(z), unstacked(d_outputs)

        def step_back(index: tf.Tensor, d_h: tf.Tensor, all_d_h: tf.TensorArray) -> Sequence:
            d_h += d_tokens.read(index)
            d_m = tf.concat([d_h] * GATES, -1) * h_to_m.read(index)
            d_before = d_h * h_to_h.read(index) + tf.matmul(d_m, recurrent_kernel, transpose_b=True)
            return [index - 1, d_before, all_d_h.write(index, d_h)]

        start = [length - 1, d_last_h, empty(products, units)]
        _, d_h, all_d_h = tf.while_loop(lambda index, *_: index >= 0, step_back, start)
        repeated = tf.concat([all_d_h.stack()] * GATES, -1)
        d_products, d_m = repeated * tf.concat([of_z, of_r, of_g], -1), repeated * of_m
        d_kernel = gradient_of_weights(before_h, d_m)
        return d_products, d_kernel, tf.reduce_sum(d_m, [0, 1]), d_h

    return (outputs, last_h), gradient

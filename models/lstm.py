"""An LSTM layer whose loop holds no product that could be one of all tokens."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf
from keras import layers

from towers.models.hoisted_products import (
    HoistedProducts,
    empty,
    gradient_of_weights,
    unstacked,
    with_own_gradient,
)

GATES = 4  # In Keras's order: input, forget, candidate, output.


class LSTM(layers.LSTM, HoistedProducts):
    """Keras's layer with its fused kernel on GPUs, and `HoistedProducts` elsewhere."""

    def over_tokens(self, products: tf.Tensor, states: Sequence[tf.Tensor]) -> Sequence[tf.Tensor]:
        """Returns the outputs, and h and c after the last token."""
        return recurrence(products, tf.convert_to_tensor(self.cell.recurrent_kernel), *states)


@with_own_gradient
def recurrence(
    products: tf.Tensor, recurrent_kernel: tf.Tensor, h: tf.Tensor, c: tf.Tensor
) -> tuple[tuple[tf.Tensor, tf.Tensor, tf.Tensor], Callable[..., tuple[tf.Tensor, ...]]]:
    """Returns the outputs and the last states of an LSTM.

    Hochreiter and Schmidhuber 1997, "Long Short-Term Memory", with the forget gate of Gers et al.
    2000, "Learning to Forget".

    Args:
        products: the inputs times the kernel, plus the bias: [length, batch, 4 units].
        recurrent_kernel: [units, 4 units].
        h: output before the first token, [batch, units].
        c: state of the cells before it, [batch, units].

    Returns:
        The outputs [length, batch, units], and h and c after the last token.
    """
    length, units = tf.shape(products)[0], recurrent_kernel.shape[0]
    tokens = unstacked(products)

    def step(index: tf.Tensor, h: tf.Tensor, c: tf.Tensor, *written: tf.TensorArray) -> Sequence:
        z = tokens.read(index) + tf.matmul(h, recurrent_kernel)
        i, f, g, o = gates(z)
        c = f * c + i * g
        h = o * tf.tanh(c)
        values = zip(written, (z, c, h), strict=True)
        return [index + 1, h, c, *(array.write(index, value) for array, value in values)]

    arrays = [empty(products, size) for size in (GATES * units, units, units)]
    start = [tf.constant(0), h, c, *arrays]
    _, last_h, last_c, *written = tf.while_loop(lambda index, *_: index < length, step, start)
    all_z, all_c, outputs = (array.stack() for array in written)

    def gradient(
        d_outputs: tf.Tensor, d_last_h: tf.Tensor, d_last_c: tf.Tensor
    ) -> tuple[tf.Tensor, ...]:
        before_h = tf.concat([h[None], outputs[:-1]], 0)
        before_c = tf.concat([c[None], all_c[:-1]], 0)
        i, f, g, o = gates(all_z)
        tanh_c = tf.tanh(all_c)
        # What a token's gradients of c and of h are multiplied by, in the gradient of its z.
        of_c = unstacked(tf.concat([g * i * (1 - i), before_c * f * (1 - f), i * (1 - g * g)], -1))
        of_h = unstacked(tanh_c * o * (1 - o))
        h_to_c, c_to_c = unstacked(o * (1 - tanh_c * tanh_c)), unstacked(f)
        d_tokens = unstacked(d_outputs)

        def step_back(index: tf.Tensor, d_h: tf.Tensor, d_c: tf.Tensor, d_z: Any) -> Sequence:
            d_h += d_tokens.read(index)
            d_c += d_h * h_to_c.read(index)
            own = tf.concat(
                [tf.concat([d_c] * (GATES - 1), -1) * of_c.read(index), d_h * of_h.read(index)], -1
            )
            d_before = tf.matmul(own, recurrent_kernel, transpose_b=True)
            return [index - 1, d_before, d_c * c_to_c.read(index), d_z.write(index, own)]

        start = [length - 1, d_last_h, d_last_c, empty(products, GATES * units)]
        _, d_h, d_c, d_z = tf.while_loop(lambda index, *_: index >= 0, step_back, start)
        d_products = d_z.stack()
        d_kernel = gradient_of_weights(before_h, d_products)
        return d_products, d_kernel, d_h, d_c

    return (outputs, last_h, last_c), gradient


def gates(z: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor, tf.Tensor]:
    """Returns input gate, forget gate, candidate and output gate, of [..., 4 units]."""
    i, f, g, o = tf.split(z, GATES, axis=-1)
    return tf.sigmoid(i), tf.sigmoid(f), tf.tanh(g), tf.sigmoid(o)

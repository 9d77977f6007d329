"""An LSTM layer whose loop holds no product that could be one of all tokens."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf
from keras import activations, layers

GATES = 4  # In Keras's order: input, forget, candidate, output.


class HoistedProducts(layers.RNN):
    """The loop over the tokens of an LSTM layer, where Keras has no fused kernel for it.

    Keras multiplies each token by the kernel, and adds up the gradient of each weight, in the loop.
    These products have few rows, so that a CPU spends its time on reading the weights again. Here
    the kernel is multiplied before the loop and the gradients of both are one product after it;
    the loops have the recurrent product alone. It is a base of `LSTM`, since Keras's layer calls
    the loop of its next base where it has no fused kernel.
    """

    def inner_loop(
        self,
        sequences: tf.Tensor,
        initial_state: Any,
        mask: tf.Tensor | None,
        training: Any = False,
    ) -> tuple[tf.Tensor, tf.Tensor, list[tf.Tensor]]:
        """Returns the last output, all outputs and the states, as Keras does.

        Args:
            sequences: [batch, length, size].
            initial_state: h and c, [batch, units] each.
            mask: of the tokens; Keras's own loop takes it.
            training: whether dropout is on.
        """
        if mask is not None or not self.is_plain():
            return super().inner_loop(sequences, initial_state, mask, training=training)
        cell = self.cell
        x = tf.transpose(sequences, [1, 0, 2])
        rows = tf.reshape(x, [-1, x.shape[-1]])
        products = tf.matmul(rows, tf.convert_to_tensor(cell.kernel)) + cell.bias
        shape = tf.concat([tf.shape(x)[:2], [GATES * cell.units]], 0)
        h, c = initial_state
        recurrent_kernel = tf.convert_to_tensor(cell.recurrent_kernel)
        outputs, h, c = recurrence(tf.reshape(products, shape), recurrent_kernel, h, c)
        if self.return_sequences:
            return h, tf.transpose(outputs, [1, 0, 2]), [h, c]
        return h, h, [h, c]

    def is_plain(self) -> bool:
        """Returns whether the layer is what `recurrence` computes."""
        cell = self.cell
        return (
            cell.activation is activations.tanh
            and cell.recurrent_activation is activations.sigmoid
            and cell.use_bias
            and not (cell.dropout or cell.recurrent_dropout)
            and not (self.go_backwards or self.unroll)
        )


class LSTM(layers.LSTM, HoistedProducts):
    """Keras's layer with its fused kernel on GPUs, and `HoistedProducts` elsewhere."""


@tf.custom_gradient
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
        d_kernel = tf.matmul(
            tf.reshape(before_h, [-1, units]),
            tf.reshape(d_products, [-1, GATES * units]),
            transpose_a=True,
        )
        return d_products, d_kernel, d_h, d_c

    return (outputs, last_h, last_c), gradient


def gates(z: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor, tf.Tensor]:
    """Returns input gate, forget gate, candidate and output gate, of [..., 4 units]."""
    i, f, g, o = tf.split(z, GATES, axis=-1)
    return tf.sigmoid(i), tf.sigmoid(f), tf.tanh(g), tf.sigmoid(o)


def unstacked(values: tf.Tensor) -> tf.TensorArray:
    """Returns an array of the values at each token, [length, batch, size]."""
    array = tf.TensorArray(values.dtype, tf.shape(values)[0], element_shape=values.shape[1:])
    return array.unstack(values)


def empty(like: tf.Tensor, size: int) -> tf.TensorArray:
    """Returns an array for [batch, size] at each token."""
    shape = [like.shape[1], size]
    return tf.TensorArray(like.dtype, tf.shape(like)[0], element_shape=shape)

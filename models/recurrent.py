"""Recurrent layers on CPUs: what their loop leaves to one product of all tokens."""

from __future__ import annotations

import contextlib
import contextvars
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import keras
import tensorflow as tf
from keras import activations, layers

LSTM_GATES = 4  # In Keras's order: input, forget, candidate, output.
GRU_GATES = 3  # In Keras's order: update, reset, candidate.

_WITHOUT: contextvars.ContextVar[bool] = contextvars.ContextVar("without", default=False)


class HoistedProducts(layers.RNN):
    """The loop over the tokens of a recurrent layer, where Keras has no fused kernel for it.

    Keras multiplies each token by the kernel, and adds up the gradient of each weight, in the loop.
    These products have few rows, so that a CPU spends its time on reading the weights again. Here
    the kernel is multiplied before the loop and the gradients of both are one product after it;
    the loops have the recurrent product alone. It is a base of `LSTM` and of `GRU`, since Keras's
    layers call the loop of their next base where they have no fused kernel.
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
            initial_state: the states, [batch, units] each; the first is the output.
            mask: of the tokens; Keras's own loop takes it.
            training: whether dropout is on.
        """
        if mask is not None or not self.is_plain():
            return super().inner_loop(sequences, initial_state, mask, training=training)
        x = tf.transpose(sequences, [1, 0, 2])
        kernel = tf.convert_to_tensor(self.cell.kernel)
        products = tf.matmul(tf.reshape(x, [-1, x.shape[-1]]), kernel) + self.input_bias
        products = tf.reshape(products, tf.concat([tf.shape(x)[:2], kernel.shape[1:]], 0))
        # Those of a stateful layer are variables, which change before the gradient is computed.
        before = list(map(tf.convert_to_tensor, tf.nest.flatten(initial_state)))
        outputs, *states = self.over_tokens(products, before)
        if self.return_sequences:
            return states[0], tf.transpose(outputs, [1, 0, 2]), states
        return states[0], states[0], states

    @property
    def input_bias(self) -> tf.Tensor:
        """The bias of the products with the kernel, [gates * units]."""
        return tf.convert_to_tensor(self.cell.bias)

    def is_plain(self) -> bool:
        """Returns whether the layer is what `over_tokens` computes."""
        cell = self.cell
        return (
            cell.activation is activations.tanh
            and cell.recurrent_activation is activations.sigmoid
            and cell.use_bias
            and not (cell.dropout or cell.recurrent_dropout)
            and not (self.go_backwards or self.unroll)
        )

    def over_tokens(self, products: tf.Tensor, states: Sequence[tf.Tensor]) -> Sequence[tf.Tensor]:
        """Returns the outputs [length, batch, units], and the states after the last token.

        Args:
            products: the inputs times the kernel, plus the bias: [length, batch, gates * units].
            states: before the first token, [batch, units] each.
        """
        raise NotImplementedError(
            f"{type(self).__name__} must define `over_tokens`, its loop over the tokens."
        )


def with_own_gradient(function: Callable[..., tuple[Any, Callable[..., Any]]]) -> Callable:
    """Returns `tf.custom_gradient(function)`, which within `without_gradients` has none.

    TensorFlow never forgets a gradient of one's own, nor the graph that it belongs to: the memory
    of a server that builds graphs now and then would grow.
    """
    differentiable = tf.custom_gradient(function)

    @functools.wraps(function)
    def call(*arguments: tf.Tensor) -> Any:
        return function(*arguments)[0] if _WITHOUT.get() else differentiable(*arguments)

    return call


@contextlib.contextmanager
def without_gradients() -> Iterator[None]:
    """The scope of computations that have no gradient, such as decoding."""
    token = _WITHOUT.set(True)
    try:
        yield
    finally:
        _WITHOUT.reset(token)


def unstacked(values: tf.Tensor) -> tf.TensorArray:
    """Returns an array of the values at each token, [length, batch, size]."""
    array = tf.TensorArray(values.dtype, tf.shape(values)[0], element_shape=values.shape[1:])
    return array.unstack(values)


def empty(like: tf.Tensor, size: int) -> tf.TensorArray:
    """Returns an array for [batch, size] at each token, of values [length, batch, any size]."""
    shape = [like.shape[1], size]
    return tf.TensorArray(like.dtype, tf.shape(like)[0], element_shape=shape)


def gradient_of_weights(inputs: tf.Tensor, d_products: tf.Tensor) -> tf.Tensor:
    """Returns the gradient of weights, from what they are multiplied by and from the products.

    The inputs are [length, batch, size], the gradient of the products [length, batch, units].
    """
    rows = tf.reshape(inputs, [-1, inputs.shape[-1]])
    d_rows = tf.reshape(d_products, [-1, d_products.shape[-1]])
    return tf.matmul(rows, d_rows, transpose_a=True)


@keras.saving.register_keras_serializable(package="towers")
class LSTM(layers.LSTM, HoistedProducts):
    """Keras's layer with its fused kernel on GPUs, and `HoistedProducts` elsewhere."""

    def over_tokens(self, products: tf.Tensor, states: Sequence[tf.Tensor]) -> Sequence[tf.Tensor]:
        """Returns the outputs, and h and c after the last token."""
        return lstm_recurrence(products, tf.convert_to_tensor(self.cell.recurrent_kernel), *states)


@with_own_gradient
def lstm_recurrence(
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

    arrays = [empty(products, size) for size in (LSTM_GATES * units, units, units)]
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
                [
                    tf.concat([d_c] * (LSTM_GATES - 1), -1) * of_c.read(index),
                    d_h * of_h.read(index),
                ],
                -1,
            )
            d_before = tf.matmul(own, recurrent_kernel, transpose_b=True)
            return [index - 1, d_before, d_c * c_to_c.read(index), d_z.write(index, own)]

        start = [length - 1, d_last_h, d_last_c, empty(products, LSTM_GATES * units)]
        _, d_h, d_c, d_z = tf.while_loop(lambda index, *_: index >= 0, step_back, start)
        d_products = d_z.stack()
        d_kernel = gradient_of_weights(before_h, d_products)
        return d_products, d_kernel, d_h, d_c

    return (outputs, last_h, last_c), gradient


def gates(z: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor, tf.Tensor]:
    """Returns input gate, forget gate, candidate and output gate, of [..., 4 units]."""
    i, f, g, o = tf.split(z, LSTM_GATES, axis=-1)
    return tf.sigmoid(i), tf.sigmoid(f), tf.tanh(g), tf.sigmoid(o)


@keras.saving.register_keras_serializable(package="towers")
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
        return gru_recurrence(
            products, recurrent_kernel, tf.convert_to_tensor(self.cell.bias)[1], *states
        )


@with_own_gradient
def gru_recurrence(
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
            d_m = tf.concat([d_h] * GRU_GATES, -1) * h_to_m.read(index)
            d_before = d_h * h_to_h.read(index) + tf.matmul(d_m, recurrent_kernel, transpose_b=True)
            return [index - 1, d_before, all_d_h.write(index, d_h)]

        start = [length - 1, d_last_h, empty(products, units)]
        _, d_h, all_d_h = tf.while_loop(lambda index, *_: index >= 0, step_back, start)
        repeated = tf.concat([all_d_h.stack()] * GRU_GATES, -1)
        d_products, d_m = repeated * tf.concat([of_z, of_r, of_g], -1), repeated * of_m
        d_kernel = gradient_of_weights(before_h, d_m)
        return d_products, d_kernel, tf.reduce_sum(d_m, [0, 1]), d_h

    return (outputs, last_h), gradient

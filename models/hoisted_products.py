"""Recurrent layers on CPUs: what their loop leaves to one product of all tokens."""

from __future__ import annotations

import contextlib
import contextvars
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import tensorflow as tf
from keras import activations, layers

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
        outputs, *states = self.over_tokens(products, tf.nest.flatten(initial_state))
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
        raise NotImplementedError


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
    """The scope of computations that nobody differentiates, such as decoding."""
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
    """Returns an array for [batch, size] at each token.

    Args:
        like: [length, batch, any size].
        size: of the values.
    """
    shape = [like.shape[1], size]
    return tf.TensorArray(like.dtype, tf.shape(like)[0], element_shape=shape)


def gradient_of_weights(inputs: tf.Tensor, d_products: tf.Tensor) -> tf.Tensor:
    """Returns the gradient of weights, from what they are multiplied by and from the products.

    Args:
        inputs: [length, batch, size].
        d_products: [length, batch, units], the gradient of the products.
    """
    rows = tf.reshape(inputs, [-1, inputs.shape[-1]])
    d_rows = tf.reshape(d_products, [-1, d_products.shape[-1]])
    return tf.matmul(rows, d_rows, transpose_a=True)

"""Whether copies of variables are bit-identical, decided on a device: one number is read of it."""

from __future__ import annotations

from collections.abc import Sequence

import keras
import tensorflow as tf

# By the bytes of an element, a type that GPUs compare; they leave int32 to the host.
BITS = {1: tf.uint8, 2: tf.uint16, 4: tf.uint32, 8: tf.uint64, 16: tf.uint64}


def same_bits(
    variables: Sequence[keras.Variable],
    copies: Sequence[Sequence[keras.Variable]],
    device: str,
) -> bool:
    """Returns whether every copy of the variables is bit-identical to them.

    NaN equals NaN if their bits are the same, and 0 differs from -0. One value after the other
    travels to the device.

    Args:
        variables: the variables, on `device`.
        copies: for each copy, its variables in the same order.
        device: compares them.
    """
    with tf.device(device):
        same = tf.constant(True)
        for place, variable in enumerate(variables):
            bits = bits_of(variable)
            for copy in copies:
                same &= tf.reduce_all(tf.equal(bits, bits_of(copy[place])))
        return bool(same)


def bits_of(variable: keras.Variable) -> tf.Tensor:
    """Returns a variable's value on the current device, as unsigned integers."""
    value = tf.identity(variable.value)
    if value.dtype == tf.bool:
        return tf.cast(value, tf.uint8)
    return tf.bitcast(value, BITS[value.dtype.size])

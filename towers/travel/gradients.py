"""Gradients between the towers and the optimizer: sum, norm, average."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import TypeAlias

import tensorflow as tf

from towers.ground.host import device_type
from towers.travel.pairs import add_in_pairs

Gradient: TypeAlias = "tf.Tensor | tf.IndexedSlices | None"


def average_gradients(
    tower_gradients: Sequence[Sequence[Gradient]], weights: Sequence[tf.Tensor | float]
) -> list[Gradient]:
    """Returns each variable's average gradient: the sum divided once by the total weight.

    Args:
        tower_gradients: one list of gradients per tower, all in the order of the variables:
            gradients of losses that were *summed* over the examples (or tokens) of a shard.
            A gradient is a tensor, a `tf.IndexedSlices` or None.
        weights: the number of examples (or tokens) of each tower's shard, scalars.

    Returns:
        One gradient per variable: sum over the towers / sum of the weights. Sparse
        gradients stay `tf.IndexedSlices` with unique rows. None if no tower has a gradient.

    >>> towers = [[tf.constant([2.0])], [tf.constant([7.0])]]
    >>> average_gradients(towers, [tf.constant(1.0), tf.constant(2.0)])[0].numpy().tolist()
    [3.0]
    """
    if len(tower_gradients) != len(weights) or len(weights) == 0:
        raise ValueError(
            "average_gradients takes the gradients and the weight of at least one tower, one "
            f"weight per tower. Received {len(tower_gradients)} towers and {len(weights)} weights."
        )
    weight = tf.add_n([tf.cast(weight, tf.float64) for weight in weights])
    summed = [sum_repeated_rows(gradient) for gradient in sum_gradients(tower_gradients)]
    return scale_gradients(summed, tf.math.reciprocal_no_nan(weight))


def sum_gradients(tower_gradients: Sequence[Sequence[Gradient]]) -> list[Gradient]:
    """Returns each variable's gradient summed over the towers; sparse ones stay sparse."""
    lengths = {len(gradients) for gradients in tower_gradients}
    if len(lengths) != 1:
        raise ValueError(
            "Every tower must have one gradient (or None) per variable, in the same order. "
            f"Received {[len(gradients) for gradients in tower_gradients]} gradients."
        )
    return [sum_gradient(gradients) for gradients in zip(*tower_gradients, strict=True)]


def sum_gradient(gradients: Sequence[Gradient]) -> Gradient:
    """Returns the sum of one variable's gradients; it is dense if one of them is dense."""
    return add_in_pairs(add_gradients, gradients)


def identity(gradient: Gradient) -> Gradient:
    """Returns the gradient on the current device: values and indices of a sparse one."""
    if isinstance(gradient, tf.IndexedSlices):
        values, indices = tf.identity(gradient.values), tf.identity(gradient.indices)
        return tf.IndexedSlices(values, indices, gradient.dense_shape)
    return None if gradient is None else tf.identity(gradient)


def add_gradients(first: Gradient, second: Gradient) -> Gradient:
    """Returns the sum of two gradients of one variable."""
    if first is None or second is None:
        return second if first is None else first
    if isinstance(first, tf.IndexedSlices) and isinstance(second, tf.IndexedSlices):
        return sum_repeated_rows(concat_rows([first, second]))
    return tf.add_n([tf.convert_to_tensor(first), tf.convert_to_tensor(second)])


def concat_rows(gradients: Sequence[tf.IndexedSlices]) -> tf.IndexedSlices:
    """Returns the rows of several sparse gradients of one variable, duplicates included."""
    return tf.IndexedSlices(
        values=tf.concat([gradient.values for gradient in gradients], axis=0),
        indices=tf.concat([gradient.indices for gradient in gradients], axis=0),
        dense_shape=gradients[0].dense_shape,
    )


def sum_repeated_rows(gradient: Gradient) -> Gradient:
    """Returns a sparse gradient with its repeated rows summed; a dense one unchanged.

    >>> slices = tf.IndexedSlices(tf.constant([[1.0], [2.0], [4.0]]), tf.constant([3, 0, 3]))
    >>> summed = sum_repeated_rows(slices)
    >>> summed.indices.numpy().tolist(), summed.values.numpy().tolist()
    ([3, 0], [[5.0], [2.0]])
    """
    if not isinstance(gradient, tf.IndexedSlices):
        return gradient
    rows, positions = tf.unique(gradient.indices)
    values = tf.math.unsorted_segment_sum(gradient.values, positions, tf.size(rows))
    return tf.IndexedSlices(values, rows, gradient.dense_shape)


def scale_gradients(gradients: Sequence[Gradient], factor: tf.Tensor) -> list[Gradient]:
    """Returns the gradients times a scalar, each in its own dtype.

    They are multiplied in the more precise of both dtypes. Were the factor rounded to 16 bits,
    TensorFlow might join it with the learning rate for one copy of the variables and not for
    another one, and the copies would differ.
    """

    def scale(gradient: Gradient) -> Gradient:
        if isinstance(gradient, tf.IndexedSlices):
            values = times(gradient.values, factor)
            return tf.IndexedSlices(values, gradient.indices, gradient.dense_shape)
        return gradient if gradient is None else times(gradient, factor)

    return [scale(gradient) for gradient in gradients]


def times(tensor: tf.Tensor, factor: tf.Tensor) -> tf.Tensor:
    """Returns a tensor times a scalar, multiplied in the more precise of both dtypes."""
    wide = max(tensor.dtype, factor.dtype, key=lambda dtype: dtype.size)
    return tf.cast(tf.cast(tensor, wide) * tf.cast(factor, wide), tensor.dtype)


def global_norm(gradients: Sequence[Gradient], dtype: tf.DType = tf.float32) -> tf.Tensor:
    """Returns the 2-norm of the concatenated gradients, a scalar of `dtype`.

    It is NaN or infinite if an entry is. Rows of sparse gradients must be unique.
    """
    halves = [half_square_sum(one, dtype) for one in gradients if one is not None]
    return tf.sqrt(2 * tf.add_n(halves)) if halves else tf.zeros([], dtype)


def norm_of_sums(
    gradients: Sequence[Gradient], factor: tf.Tensor, host: str
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Returns `global_norm` times a factor, whether it is finite, a bool scalar, and the factor.

    Finite gradients have a finite norm: squares that overflow are computed again from entries
    divided by the largest one. If the current device is a GPU, all three are on the host, which
    decides: norm and factor travel together, and the host waits once.

    Args:
        gradients: the gradients; rows of sparse ones are unique.
        factor: scalar of the norm's dtype.
        host: the device of the second result.
    """
    norm = global_norm(gradients, factor.dtype) * factor
    device = norm.device
    on_gpu = device_type(device or "") == "GPU"
    if on_gpu:
        pair = tf.stack([norm, factor])
    with tf.device(host):
        if on_gpu:
            norm, factor = tf.unstack(tf.identity(pair))
        finite = tf.identity(tf.math.is_finite(norm))
    if all(gradient is None for gradient in gradients):
        return norm, finite, factor

    def kept() -> tuple[tf.Tensor, tf.Tensor]:
        return norm, tf.ones([], tf.int32)

    def computed_again() -> tuple[tf.Tensor, tf.Tensor]:
        with tf.device(device or None):
            scaled = scaled_norm(gradients, factor.dtype) * factor
        with tf.device(host):
            return scaled, tf.cast(tf.math.is_finite(scaled), tf.int32)

    # Branches return int32 numbers in host memory, and truth values in that of a GPU.
    with tf.device(host) if on_gpu else contextlib.nullcontext():
        norm, finite = tf.cond(finite, kept, computed_again)
    with tf.device(host):
        return norm, tf.cast(finite, tf.bool), factor


def scaled_norm(gradients: Sequence[Gradient], dtype: tf.DType) -> tf.Tensor:
    """Returns the norm without overflow in its squares; at least one gradient is not None."""
    present = [getattr(one, "values", one) for one in gradients if one is not None]
    entries = tf.concat([tf.reshape(tf.cast(one, dtype), [-1]) for one in present], axis=0)
    largest = tf.reduce_max(tf.abs(entries))
    return largest * tf.norm(entries / largest)


def clip_factor(norm: tf.Tensor, clip_norm: float | None) -> tf.Tensor:
    """Returns the factor that limits gradients of this norm to `clip_norm`, a scalar.

    Pascanu et al. 2013, "On the difficulty of training recurrent neural networks", algorithm 1.
    """
    if clip_norm is None:
        return tf.ones([], norm.dtype)  # It does not wait for the norm.
    return clip_norm / tf.maximum(norm, clip_norm)


def half_square_sum(gradient: tf.Tensor | tf.IndexedSlices, dtype: tf.DType) -> tf.Tensor:
    """Returns half the sum of a gradient's squares, on the tower's device where the gradient is.

    A gradient on the host is on its way to the current device.
    """
    values = getattr(gradient, "values", gradient)
    device = "" if tf.executing_eagerly() else values.device
    on_tower = device and not device.endswith("CPU:0")
    with tf.device(device) if on_tower else contextlib.nullcontext():
        return tf.nn.l2_loss(tf.cast(values, dtype))

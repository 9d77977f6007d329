"""The precision of what a model sums: at least float32, and float64 for a float64 model."""

from __future__ import annotations

import tensorflow as tf


def wide_dtype(dtype: tf.DType) -> tf.DType:
    """Returns float64 for float64, and float32 for every other type."""
    return tf.float64 if dtype == tf.float64 else tf.float32


def at_least_float32(tensor: tf.Tensor) -> tf.Tensor:
    """Returns the tensor in float32, or as it is if it is float64."""
    return tf.cast(tensor, wide_dtype(tensor.dtype))

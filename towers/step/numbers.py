"""The number of a step or of a batch as a tensor, which leaves nothing behind."""

from __future__ import annotations

import numpy as np
import tensorflow as tf


def number_tensor(number: int | tf.Tensor) -> tf.Tensor:
    """Returns a number as int64 [].

    TensorFlow keeps every Python number of which it ever made a tensor (`TFE_TensorHandleCache`,
    some 700 bytes each), but no array. A training would grow with each of its steps.
    """
    value = np.asarray(number, np.int64) if isinstance(number, int) else number
    return tf.convert_to_tensor(value, tf.int64)

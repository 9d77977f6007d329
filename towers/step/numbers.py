"""The number of a step or of a batch as a tensor: on the host, and nothing stays behind."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from towers.ground.host import HOST


def number_on_host(number: int | tf.Tensor) -> tf.Tensor:
    """Returns a number as int64 [] on the host, where seeds derive from it.

    TensorFlow keeps every Python number of which it ever made a tensor (`TFE_TensorHandleCache`,
    some 700 bytes each), but no array. A training would grow with each of its steps.
    """
    value = np.asarray(number, np.int64) if isinstance(number, int) else number
    with tf.device(HOST):  # Otherwise TensorFlow puts it into the memory of the first GPU.
        return tf.convert_to_tensor(value, tf.int64)

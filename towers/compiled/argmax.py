"""Keras's `argmax`, which accuracies ask for in every step, in one pass over the outputs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import tensorflow as tf

from towers.ground.hooks import Hook
from towers.ground.host import device_type
from towers.ground.private_apis import numpy as keras_numpy

ARGMAX = Hook(keras_numpy, "argmax")
MANY = 1000  # Classes. With fewer, passes cost no more than the ops around them.


@contextmanager
def argmax_in_one_pass() -> Iterator[None]:
    """The scope in which Keras finds the largest of many entries in a sixth of the passes.

    Keras reads and writes all entries five times to rank -0.0 below 0.0, which matters only where
    the largest entry is a zero. The results are the same. On a CPU the passes are a twentieth of
    the step of a language model; on a GPU a choice between two ways would wait for the device.
    """
    with ARGMAX.through(argmax):
        yield


def argmax(
    original: Callable[..., tf.Tensor], x: Any, axis: int | None = None, keepdims: bool = False
) -> tf.Tensor:
    """Returns what Keras's function returns, which is called for all but many float32 on a CPU."""
    x = tf.convert_to_tensor(x)
    is_slow = x.dtype == tf.float32 and device_type(x.device) == "CPU" and bool(x.shape.rank)
    is_last = axis == -1 and not keepdims  # As Keras's metrics ask.
    if not (is_slow and is_last and (x.shape[-1] or 0) >= MANY):
        return original(x, axis=axis, keepdims=keepdims)
    found = tf.argmax(x, axis=-1, output_type=tf.int32)
    largest = tf.gather(x, found, batch_dims=x.shape.rank - 1)
    is_plain = tf.reduce_all(tf.abs(largest) >= tf.float32.as_numpy_dtype(2.0**-126))
    return tf.cond(is_plain, lambda: found, lambda: original(x, axis=-1))

"""Tracing: the one trace of a step, its results where they are computed, its number on the host."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.types.experimental import ConcreteFunction

from towers.ground.host import HOST


def trace(function: Callable[..., Any], device: str, *specs: Any) -> ConcreteFunction:
    """Returns a function, traced.

    TensorFlow marks each result with an identity, in no scope of the function. Without a device it
    may be placed on a GPU, to which a result of the CPU then travels and from which it comes back.

    Args:
        function: a function of tensors.
        device: the device of its results.
        specs: the specs of its arguments.
    """
    with contextlib.ExitStack() as after_the_results:

        @functools.wraps(function)
        def traced(*arguments: Any) -> Any:
            results = function(*arguments)
            after_the_results.enter_context(tf.device(device))
            return results

        return tf.function(traced, autograph=False).get_concrete_function(*specs)


def number_on_host(number: int | tf.Tensor) -> tf.Tensor:
    """Returns a number as int64 [] on the host, where seeds derive from it.

    TensorFlow keeps every Python number that ever became a tensor (`TFE_TensorHandleCache`,
    some 700 bytes each), but no array. A training would grow with each of its steps.
    """
    value = np.asarray(number, np.int64) if isinstance(number, int) else number
    with tf.device(HOST):  # Otherwise TensorFlow puts it into the memory of the first GPU.
        return tf.convert_to_tensor(value, tf.int64)

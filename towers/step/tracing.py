"""Tracing: the one trace of a step, whose results stay where they are computed."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from typing import Any

import tensorflow as tf
from tensorflow.types.experimental import ConcreteFunction


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

"""Determinism: bit-identical results in every run, on any number of towers."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import tensorflow as tf

from towers.devices.cpu import use_all_cores
from towers.ground.private_apis import gen_math_ops, is_op_determinism_enabled

ADD_N = gen_math_ops.add_n  # As TensorFlow has it.


def enable_determinism() -> None:
    """Makes this process compute bit-identical results from the same values on the same machine.

    Call it and `keras.utils.set_random_seed` before the first tensor or variable is made: from
    now on, an op that draws random numbers without a seed raises RuntimeError.

    Updates are also bit-identical on any number of towers, dropout included, if the batches are
    cut into the same number of micro-batches (towers times micro-batches per tower, the latter a
    power of two), the devices are of the same kind, the parameters live in the same place and
    `batch_norm` is `mean`. Micro-batches are then summed in pairs, so a tower holds more sums in
    memory: one for each doubling of its micro-batches.

    This turns off TensorFlow's arithmetic optimizer, which flattens nested sums on one device and
    so rounds differently on one tower than on several. Towers on the CPU run each operation on as
    many threads as one tower does, for the same reason, which takes longer. `tf.add_n` and all
    tapes of this process add in the order of the list (`add_in_order`).

    Raises:
        RuntimeError: TensorFlow is already running with other threads.
    """
    use_all_cores()
    tf.config.experimental.enable_op_determinism()
    tf.config.optimizer.set_experimental_options({"arithmetic_optimization": False})
    gen_math_ops.add_n = add_in_order


def add_in_order(inputs: Sequence[tf.Tensor], name: str | None = None) -> tf.Tensor:
    """Returns the sum of tensors of one shape, each added to the sum of those before it.

    TensorFlow's op, by which tapes add the gradients of a tensor that is used several times, takes
    the memory of an input that nobody reads any more for the sum, and begins with that input. So
    the order of three or more depends on which threads are done, even with its own determinism.
    """
    if len(inputs) < 3:
        return ADD_N(inputs, name)
    return functools.reduce(lambda total, value: ADD_N([total, value], name), inputs)


def is_deterministic() -> bool:
    """Returns whether `enable_determinism` was called in this process."""
    return bool(is_op_determinism_enabled())


def sums_stay_nested() -> bool:
    """Returns whether TensorFlow computes nested sums as written, not flattened."""
    options = tf.config.optimizer.get_experimental_options()
    return options.get("arithmetic_optimization") is False

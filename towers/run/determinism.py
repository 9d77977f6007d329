"""Determinism: the same numbers in every run, on whatever number of towers."""

from __future__ import annotations

import tensorflow as tf


def enable_determinism() -> None:
    """Makes this process compute the same numbers from the same values on the same machine.

    Call it before a step is built, and `keras.utils.set_random_seed` before a model is: an op
    that draws random numbers without a seed raises RuntimeError from then on.

    Where batches are cut into the same parts (towers times micro-batches, of which each tower has
    a power of two), every update is the same to the last bit on any number of towers too, dropout
    included, as long as the devices are alike, the parameters live in the same place and
    `batch_norm` is `mean`. The parts are then added up in pairs, so that a tower holds more sums
    at a time: one for each doubling of its micro-batches.

    TensorFlow's arithmetic optimizer is off from then on. It joins nested sums on one device
    into a flat one, and so rounds them differently on one tower than on several.
    """
    tf.config.experimental.enable_op_determinism()
    tf.config.optimizer.set_experimental_options({"arithmetic_optimization": False})


def sums_stay_nested() -> bool:
    """Returns whether nested sums are computed as they are written."""
    options = tf.config.optimizer.get_experimental_options()
    return options.get("arithmetic_optimization") is False

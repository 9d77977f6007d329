"""Determinism: the same numbers in every run, on whatever number of towers."""

from __future__ import annotations

import tensorflow as tf


def enable_determinism() -> None:
    """Makes this process compute the same numbers in every run on the same machine.

    Call it before a step is built. Where batches are cut into the same parts (towers times
    micro-batches, of which each tower has a power of two), the weights are then the same to the
    last bit on every number of towers too, dropout included.

    TensorFlow's arithmetic optimizer is off from then on. It joins nested sums on one device
    into a flat one, and so rounds them differently on one tower than on several.
    """
    tf.config.experimental.enable_op_determinism()
    tf.config.optimizer.set_experimental_options({"arithmetic_optimization": False})

"""Where an epoch's batches begin: checked, and turned into a data set from there on."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import tensorflow as tf

NUM_CALLS = 2  # Batches that are put together at once.
NUM_AHEAD = 4  # Batches that wait for the training.


def check_position(epoch: int, first_step: int, steps_per_epoch: int) -> None:
    """Raises ValueError unless it is a place in an epoch, its end included."""
    if epoch < 0 or not 0 <= first_step <= steps_per_epoch:
        raise ValueError(
            f"An epoch has {steps_per_epoch} batches, and epochs count from 0. Received "
            f"epoch={epoch}, first_step={first_step}."
        )


def pairs_from(
    batch_of_step: Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]],
    first_step: int,
    steps_per_epoch: int,
) -> tf.data.Dataset:
    """Returns the batches of an epoch from one of its steps on, in order, put together ahead.

    Args:
        batch_of_step: from a step of the epoch to a pair of int32 [batch, length].
        first_step: how many batches were consumed already.
        steps_per_epoch: how many there are.
    """
    import tensorflow as tf  # Here, since a corpus is prepared without it.

    @tf.autograph.experimental.do_not_convert
    def load(step: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        first, second = tf.numpy_function(batch_of_step, [step], [tf.int32, tf.int32])
        return tf.ensure_shape(first, [None, None]), tf.ensure_shape(second, [None, None])

    steps = tf.data.Dataset.range(first_step, steps_per_epoch)
    batches = steps.map(load, num_parallel_calls=NUM_CALLS, deterministic=True)
    return batches.prefetch(NUM_AHEAD)

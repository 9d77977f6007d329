"""Seeds: the states of random generators, a function of seed, step and micro-batch."""

from __future__ import annotations

import tensorflow as tf


def micro_batch_seed(seed: int, step: tf.Tensor, number: int | tf.Tensor) -> tf.Tensor:
    """Returns the seed of one micro-batch, int64 [2].

    Micro-batches are numbered across all towers, so a micro-batch has the same seed on any tower.

    Args:
        seed: the run's seed.
        step: the step's number, an int64 scalar.
        number: the number of the micro-batch within the global batch, from 0.
    """
    return fold_in(fold_in(tf.constant([seed, 0], tf.int64), step), number)


def seed_states(seed: tf.Tensor, num_generators: int) -> list[tf.Tensor]:
    """Returns a state for each seed generator, int64 [2], all different.

    A generator adds one to the second number at each draw, so the first numbers must differ:
    otherwise the second draw of one generator would equal the first draw of the next.
    """
    return [fold_in(fold_in(seed, generator), 0) for generator in range(num_generators)]


def fold_in(seed: tf.Tensor, number: int | tf.Tensor) -> tf.Tensor:
    """Returns a new seed, int64 [2], a function of a seed and a number."""
    return tf.random.experimental.stateless_fold_in(seed, tf.cast(number, tf.int64))

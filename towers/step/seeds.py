"""Seeds: the state of every random number generator, from the run's seed, the step and the part."""

from __future__ import annotations

import tensorflow as tf


def part_seed(seed: int, step: tf.Tensor, part: int) -> tf.Tensor:
    """Returns the seed of one part of a batch, int64 [2]: of a micro-batch of a tower.

    Parts count on over the towers, so that a part is the same whichever tower runs it.
    """
    return fold_in(fold_in(tf.constant([seed, 0], tf.int64), step), part)


def seed_states(seed: tf.Tensor, num_generators: int) -> list[tf.Tensor]:
    """Returns a state for each seed generator, int64 [2], all different.

    A generator adds one to the second number at each draw, so that the first must differ: else
    the second draw of one generator is the first of the next.
    """
    return [fold_in(fold_in(seed, generator), 0) for generator in range(num_generators)]


def fold_in(seed: tf.Tensor, number: int | tf.Tensor) -> tf.Tensor:
    """Returns another seed, int64 [2], that is a function of a seed and a number."""
    return tf.random.experimental.stateless_fold_in(seed, tf.cast(number, tf.int64))

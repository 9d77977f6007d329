"""Parts: a tower's micro-batches, with the seed of each and what it adds to the states.

Random numbers are a function of (seed, step, part): no generator keeps a state between steps.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import tensorflow as tf

from towers.step.synchronized import Replica


class Part(NamedTuple):
    """A micro-batch as one part of the global batch.

    Attributes:
        tower: the tower's number among the towers of all processes.
        seed: int64 [2], the seed of its random numbers.
        is_first: bool scalar, whether it is the first part of the global batch.
        gives_averages: whether its moving averages count, by the policy for BatchNorm.
        replica: the tower as one that adds sums of synchronised layers; None if it adds none.
    """

    tower: int
    seed: tf.Tensor
    is_first: tf.Tensor
    gives_averages: bool = True
    replica: Replica | None = None


def part_of(
    tower: int,
    number: Any,
    seed: int,
    step: tf.Tensor,
    *,
    gives_averages: bool = True,
    replica: Replica | None = None,
) -> Part:
    """Returns a part of the global batch.

    Micro-batches are numbered across all towers, so a micro-batch has the same seed on any tower.

    Args:
        tower, gives_averages, replica: as in `Part`.
        number: its number within the global batch, from 0; an int, or an int32 scalar.
        seed: the run's seed.
        step: the step's number, an int64 scalar.
    """
    own_seed = fold_in(fold_in(tf.constant([seed, 0], tf.int64), step), number)
    is_first = tf.constant(number == 0) if isinstance(number, int) else tf.equal(number, 0)
    return Part(tower, own_seed, is_first, gives_averages, replica)


def seed_states(seed: tf.Tensor, num_generators: int) -> list[tf.Tensor]:
    """Returns a state for each seed generator, int64 [2], all different.

    A generator adds one to the second number at each draw, so the first numbers must differ:
    otherwise the second draw of one generator would equal the first draw of the next.
    """
    return [fold_in(fold_in(seed, generator), 0) for generator in range(num_generators)]


def fold_in(seed: tf.Tensor, number: int | tf.Tensor) -> tf.Tensor:
    """Returns a new seed, int64 [2], a function of a seed and a number."""
    return tf.random.experimental.stateless_fold_in(seed, tf.cast(number, tf.int64))

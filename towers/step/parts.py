"""Parts: a tower's micro-batches, with the seed of each and what it adds to the states.

Random numbers are a function of (seed, step, part): no generator keeps a state between steps.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow as tf

from towers.step.synchronized import Replica


class Part(NamedTuple):
    """A micro-batch as one part of the global batch.

    Attributes:
        tower: the tower's number among the towers of all processes.
        seed: int64 [2], the seed of its random numbers.
        gives_averages: whether its moving averages count, by the policy for BatchNorm.
        is_first: bool scalar, whether it is the first part of the global batch.
        replica: the tower as one that adds sums of synchronised layers; None if it adds none.
    """

    tower: int
    seed: tf.Tensor
    gives_averages: bool
    is_first: tf.Tensor
    replica: Replica | None = None


class Parts(NamedTuple):
    """The parts of the global batch that one shard consists of.

    Attributes:
        at: returns the part with an index within the shard, an int or an int32 scalar.
        num_parts: how many there are.
        in_loop: whether the graph may loop over them; synchronised layers sum outside of loops.
    """

    at: Callable[[Any], Part]
    num_parts: int
    in_loop: bool = True


def part_of(
    tower: int, number: Any, seed: int, step: tf.Tensor, replica: Replica | None = None
) -> Part:
    """Returns a part whose moving averages count.

    Args:
        tower: the tower's number.
        number: its number within the global batch, from 0; an int, or an int32 scalar.
        seed: the run's seed.
        step: the step's number, an int64 scalar.
        replica: as in `Part`.
    """
    seed_of_part = micro_batch_seed(seed, step, number)
    is_first = tf.constant(number == 0) if isinstance(number, int) else tf.equal(number, 0)
    return Part(tower, seed_of_part, True, is_first, replica)


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

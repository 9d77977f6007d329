"""Parts: a tower's micro-batches, with the seed of each and what it adds to the states."""

from __future__ import annotations

from typing import NamedTuple

import tensorflow as tf

from towers.step.seeds import micro_batch_seed
from towers.step.synchronized import Member


class Part(NamedTuple):
    """A micro-batch as one part of the global batch.

    Attributes:
        tower: the tower's number among the towers of all processes.
        seed: int64 [2], the seed of its random numbers.
        gives_averages: whether its moving averages count, by the policy for BatchNorm.
        is_first: bool scalar, whether it is the first part of the global batch.
        member: the tower as one that adds sums of synchronised layers; None if it adds none.
    """

    tower: int
    seed: tf.Tensor
    gives_averages: bool
    is_first: tf.Tensor
    member: Member | None = None


def part_of(
    tower: int, number: int, seed: int, step: tf.Tensor, member: Member | None = None
) -> Part:
    """Returns a part whose moving averages count.

    Args:
        tower: the tower's number.
        number: its number within the global batch, from 0.
        seed: the run's seed.
        step: the step's number, an int64 scalar.
        member: as in `Part`.
    """
    seed_of_part = micro_batch_seed(seed, step, number)
    return Part(tower, seed_of_part, True, tf.constant(number == 0), member)

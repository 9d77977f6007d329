"""The rows of a batch that one of several processes reads: those of its own towers."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol, runtime_checkable

import tensorflow as tf

from towers.batches.shards import Batch, Shard, check_batch_spec, cut_rows
from towers.ground.epochs import ChooseRows
from towers.travel.pairs import part_sizes


@runtime_checkable
class RowBatches(Protocol):
    """Batches that can be read in part, so that a process reads no rows of other processes."""

    def __call__(self, epoch: int, first_step: int = 0) -> tf.data.Dataset:
        """Returns the global batches of an epoch from one of its steps on."""

    def take_rows(self, choose: ChooseRows, epoch: int, first_step: int = 0) -> tf.data.Dataset:
        """Returns pairs (some rows of each global batch, the number of all its rows).

        Args:
            choose: `choose(num_rows)` returns a slice of at least one of a batch's rows, with its
                start and its stop.
            epoch: number of the epoch, from 0.
            first_step: number of its batches that were consumed already.

        Returns:
            A data set of the same batches in the same order. The rows are, bit for bit, those of
            the global batch, and as long as its longest; the number is an int32 scalar.
        """


class OwnRows(NamedTuple):
    """The towers of one process among those of all.

    Attributes:
        first: the number of its first tower.
        num_towers: the number of its towers.
        total: the number of the towers of all processes.
    """

    first: int
    num_towers: int
    total: int

    def sizes(self, num_rows: Any) -> list[Any]:
        """Returns the size of each of its shards, given the number of rows of a global batch."""
        return part_sizes(num_rows, self.total)[self.first : self.first + self.num_towers]

    def choose(self, num_rows: int) -> slice:
        """Returns the rows of its shards; the first row of the batch if all of them are empty."""
        start = sum(part_sizes(num_rows, self.total)[: self.first])
        size = sum(self.sizes(num_rows))
        return slice(start, start + size) if size else slice(0, 1)

    def shards(self, batches: RowBatches, epoch: int, first_step: int) -> tf.data.Dataset:
        """Returns its shards of global batches; it reads its own rows only."""
        dataset = batches.take_rows(self.choose, epoch, first_step)
        check_batch_spec(dataset.element_spec[0])

        @tf.autograph.experimental.do_not_convert  # Conversion would dominate an epoch's start.
        def cut(rows: Batch, num_rows: tf.Tensor) -> tuple[Shard, ...]:
            sizes = self.sizes(num_rows)
            return (Shard(rows, sizes[0]),) if self.num_towers == 1 else cut_rows(rows, sizes)

        return dataset.map(cut, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True)

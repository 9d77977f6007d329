"""Batches that can be read whole, or some rows of each: what a process needs of the global ones."""

from __future__ import annotations

import abc
from typing import TYPE_CHECKING

import numpy as np

from towers.data.batching.epochs import ChooseRows, all_rows

if TYPE_CHECKING:
    import tensorflow as tf


class RowBatches(abc.ABC):
    """The batches of an epoch, a function of (seed, epoch), from any of its steps on."""

    def __call__(self, epoch: int, first_step: int = 0) -> tf.data.Dataset:
        """Returns the batches of an epoch from one of its steps on.

        Args:
            epoch: number of the epoch, from 0.
            first_step: number of its batches that were consumed already.
        """
        return self.rows(all_rows, epoch, first_step)

    def take_rows(self, choose: ChooseRows, epoch: int, first_step: int = 0) -> tf.data.Dataset:
        """Returns pairs (some rows of each batch, the number of all its rows as an int32 scalar).

        Args:
            choose: `choose(num_rows)` returns the slice of a batch's rows.
            epoch, first_step: as for whole batches.
        """
        import tensorflow as tf  # Not at the top: a corpus is prepared without TensorFlow.

        counts = self.row_counts(epoch)[first_step:].astype(np.int32)
        rows = self.rows(choose, epoch, first_step)
        return tf.data.Dataset.zip((rows, tf.data.Dataset.from_tensor_slices(counts)))

    @abc.abstractmethod
    def rows(self, choose: ChooseRows, epoch: int, first_step: int) -> tf.data.Dataset:
        """Returns the chosen rows of each batch of an epoch; arguments as in `take_rows`."""

    @abc.abstractmethod
    def row_counts(self, epoch: int) -> np.ndarray:
        """Returns the number of rows of each batch of an epoch, int [steps]."""

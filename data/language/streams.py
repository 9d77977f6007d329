"""A text as contiguous streams: each row continues the same row of the batch before."""

from __future__ import annotations

import dataclasses

import numpy as np
import tensorflow as tf

from towers.data.batching.epochs import ChooseRows, all_rows, check_position, with_sizes
from towers.data.language.vocabulary import END, PAD


def stream_batches(
    tokens: np.ndarray, num_rows: int, num_steps: int, *, drop_tail: bool = True
) -> StreamBatches:
    """Returns `batches(epoch, first_step=0) -> tf.data.Dataset` over a text cut into streams.

    Row r of every batch belongs to stream r, the r-th of `num_rows` equal parts of the text. Each
    token is the target of the one before it; before the first one the text begins with END.

    Args:
        tokens: int32 [n], without padding.
        num_rows: number of streams, the rows of every batch.
        num_steps: number of tokens of a stream in a batch.
        drop_tail: whether to leave out the tokens at the end that do not fill a batch (as Zaremba
            et al. 2014 do in training); otherwise every token is a target exactly once, and the
            last batch is padded.

    Raises:
        ValueError: a number is below 1, or the text does not fill a batch.
    """
    for name, number in {"num_rows": num_rows, "num_steps": num_steps}.items():
        if number < 1:
            raise ValueError(f"{name} must be at least 1. Received {number}.")
    least = num_rows * num_steps if drop_tail else 1
    if len(tokens) < least:
        raise ValueError(
            f"A batch of {num_rows} streams with {num_steps} tokens each needs {least} tokens. "
            f"The text has {len(tokens)}; give a longer text, or fewer streams or tokens."
        )
    before = np.concatenate([[END], tokens[:-1]])
    inputs, targets = (cut(part, num_rows, num_steps, drop_tail) for part in (before, tokens))
    return StreamBatches(inputs, targets)


def cut(tokens: np.ndarray, num_rows: int, num_steps: int, drop_tail: bool) -> np.ndarray:
    """Returns the tokens as int32 [num_batches, num_rows, num_steps]; pads a tail that is kept."""
    if drop_tail:
        length = len(tokens) // num_rows
        used = length - length % num_steps
        streams = tokens[: length * num_rows].reshape(num_rows, length)[:, :used]
    else:
        length = -(-len(tokens) // num_rows)
        padded = np.pad(tokens, (0, length * num_rows - len(tokens)), constant_values=PAD)
        fill = -length % num_steps
        streams = np.pad(padded.reshape(num_rows, length), ((0, 0), (0, fill)), constant_values=PAD)
    batches = streams.reshape(num_rows, -1, num_steps).swapaxes(0, 1)
    return np.ascontiguousarray(batches, np.int32)


@dataclasses.dataclass(frozen=True, eq=False)
class StreamBatches:
    """The batches of `stream_batches`.

    Attributes:
        inputs, targets: int32 [steps_per_epoch, num_rows, num_steps], padded with 0.
    """

    inputs: np.ndarray
    targets: np.ndarray

    def __call__(self, epoch: int, first_step: int = 0) -> tf.data.Dataset:
        """Returns the batches of an epoch from one of its steps on.

        Each batch is (inputs: int32 [num_rows, num_steps], targets: the same shape, starts: bool
        [num_rows]). `starts` is True for rows in which a stream begins: all rows of the first
        batch. Every epoch is the same.

        Args:
            epoch: number of the epoch, from 0.
            first_step: number of its batches that were consumed already.
        """
        return self._epoch(epoch, first_step, all_rows(self.num_rows))

    def take_rows(self, choose: ChooseRows, epoch: int, first_step: int = 0) -> tf.data.Dataset:
        """Returns pairs (some rows of each batch, the number of all its rows).

        Args:
            choose: `choose(num_rows)` returns the slice of a batch's rows.
            epoch, first_step: as for whole batches.
        """
        rows = self._epoch(epoch, first_step, choose(self.num_rows))
        return with_sizes(rows, np.full(self.steps_per_epoch - first_step, self.num_rows))

    def _epoch(self, epoch: int, first_step: int, rows: slice) -> tf.data.Dataset:
        check_position(epoch, first_step, self.steps_per_epoch)
        starts = np.zeros((self.steps_per_epoch, self.num_rows), bool)
        starts[0] = True
        arrays = (self.inputs, self.targets, starts)
        return tf.data.Dataset.from_tensor_slices(tuple(part[first_step:, rows] for part in arrays))

    @property
    def num_rows(self) -> int:
        """The number of rows of every batch."""
        return self.inputs.shape[1]

    @property
    def num_examples(self) -> int:
        """The number of tokens in an epoch that are targets."""
        return int(np.count_nonzero(self.targets != PAD))

    @property
    def steps_per_epoch(self) -> int:
        """The number of batches in an epoch."""
        return len(self.inputs)

"""A text as contiguous streams: each row continues the same row of the batch before."""

from __future__ import annotations

import dataclasses

import numpy as np
import tensorflow as tf

from towers.data.batching.epochs import (
    NUM_PARALLEL_CALLS,
    NUM_PREFETCHED,
    ChooseRows,
    all_rows,
    check_position,
    with_sizes,
)
from towers.data.language.pieces import inputs_and_targets
from towers.data.language.vocabulary import END, PAD


def stream_batches(
    tokens: np.ndarray,
    num_rows: int,
    num_steps: int,
    *,
    drop_tail: bool = True,
    first: int = END,
    padding: int = PAD,
) -> StreamBatches:
    """Returns `batches(epoch, first_step=0) -> tf.data.Dataset` over a text cut into streams.

    Row r of every batch belongs to stream r, the r-th of `num_rows` equal parts of the text. Each
    token is the target of the one before it.

    Args:
        tokens: integers [n], without padding, which may be memory-mapped: only what a batch needs
            is read.
        num_rows: number of streams, the rows of every batch.
        num_steps: number of tokens of a stream in a batch.
        drop_tail: whether to leave out the tokens at the end that do not fill a batch (as Zaremba
            et al. 2014 do in training); otherwise every token is a target exactly once, and the
            last batch is padded.
        first: the token that is read before the text.
        padding: the id outside of the text.

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
    return StreamBatches(tokens, num_rows, num_steps, drop_tail, first, padding)


@dataclasses.dataclass(frozen=True, eq=False)
class StreamBatches:
    """The batches of `stream_batches`, which documents the attributes."""

    tokens: np.ndarray
    num_rows: int
    num_steps: int
    drop_tail: bool
    first: int
    padding: int

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
        shape = (rows.stop - rows.start, self.num_steps)

        def batch_of_step(step: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            return self._batch(step, rows)

        @tf.autograph.experimental.do_not_convert
        def load(step: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
            inputs, targets = tf.numpy_function(batch_of_step, [step], [tf.int32, tf.int32])
            starts = tf.fill(shape[:1], tf.equal(step, 0))
            return tf.ensure_shape(inputs, shape), tf.ensure_shape(targets, shape), starts

        steps = tf.data.Dataset.range(first_step, self.steps_per_epoch)
        batches = steps.map(load, num_parallel_calls=NUM_PARALLEL_CALLS, deterministic=True)
        return batches.prefetch(NUM_PREFETCHED)

    @property
    def num_examples(self) -> int:
        """The number of tokens in an epoch that are targets."""
        if self.drop_tail:
            return self.steps_per_epoch * self.num_rows * self.num_steps
        return len(self.tokens)

    @property
    def steps_per_epoch(self) -> int:
        """The number of batches in an epoch."""
        return (
            self._length // self.num_steps if self.drop_tail else -(-self._length // self.num_steps)
        )

    @property
    def _length(self) -> int:
        """The number of tokens of each stream, the last of which may have fewer."""
        if self.drop_tail:
            return len(self.tokens) // self.num_rows
        return -(-len(self.tokens) // self.num_rows)

    def _batch(self, step: np.ndarray, rows: slice) -> tuple[np.ndarray, np.ndarray]:
        within = int(step) * self.num_steps + np.arange(self.num_steps)
        places = np.arange(rows.start, rows.stop)[:, None] * self._length + within
        inside = (within < self._length) & (places < len(self.tokens))
        return inputs_and_targets(self.tokens, places, inside, self.first, self.padding)

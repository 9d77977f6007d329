"""A text as contiguous streams: each row continues the same row of the batch before."""

from __future__ import annotations

import dataclasses

import numpy as np
import tensorflow as tf

from towers.data.batching.epochs import (
    NUM_PARALLEL_CALLS,
    NUM_PREFETCHED,
    ChooseRows,
    check_position,
)
from towers.data.batching.row_batches import RowBatches
from towers.data.language.pieces import inputs_and_targets
from towers.data.text.words import END, PAD


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
            f"The text has {len(tokens)}; give a longer text, fewer streams (--batch-size) or "
            "fewer tokens (--set num_steps)."
        )
    return StreamBatches(tokens, num_rows, num_steps, drop_tail, first, padding)


@dataclasses.dataclass(frozen=True, eq=False)
class StreamBatches(RowBatches):
    """The batches of `stream_batches`, which documents the attributes."""

    tokens: np.ndarray
    num_rows: int
    num_steps: int
    drop_tail: bool
    first: int
    padding: int

    def row_counts(self, epoch: int) -> np.ndarray:
        """Returns the number of rows of each batch of an epoch."""
        return np.full(self.steps_per_epoch, self.num_rows)

    def rows(self, choose: ChooseRows, epoch: int, first_step: int) -> tf.data.Dataset:
        """Returns the chosen rows of each batch of an epoch.

        Each element is (inputs: int32 [rows, num_steps], targets: the same shape, starts: bool
        [rows]). `starts` is True for rows in which a stream begins: all rows of the first batch.
        Every epoch is the same.
        """
        check_position(epoch, first_step, self.steps_per_epoch)
        rows = choose(self.num_rows)
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

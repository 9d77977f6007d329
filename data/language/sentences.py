"""A text as sentences: each line is an example, in batches of similar lengths."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np

from towers.data.batching.balance import balanced_rows
from towers.data.batching.buckets import Layout, fitted_layout
from towers.data.batching.epochs import ChooseRows, bucketed_epoch, row_counts
from towers.data.batching.row_batches import RowBatches
from towers.data.text.words import END, PAD

if TYPE_CHECKING:
    import tensorflow as tf


def sentence_batches(
    tokens: np.ndarray, batch_size: int, *, seed: int = 0, shuffle: bool = True
) -> SentenceBatches:
    """Returns `batches(epoch, first_step=0) -> tf.data.Dataset` over the lines of a text.

    Args:
        tokens: int32 [n], lines that each end with END.
        batch_size: maximum number of sentences in a batch.
        seed: of the order.
        shuffle: whether each epoch has its own order; otherwise it goes from short to long.

    Raises:
        ValueError: the batch size is below 1, the seed is negative, or there is no whole sentence.
    """
    if batch_size < 1:
        raise ValueError(f"batch_size must be at least 1. Received {batch_size}.")
    if seed < 0:
        raise ValueError(f"seed must not be negative. Received {seed}.")
    if not len(tokens) or tokens[-1] != END:
        raise ValueError("tokens must consist of lines, the last of which ends with END.")
    ends = np.flatnonzero(tokens == END) + 1
    lengths = np.diff(ends, prepend=0)
    layout = fitted_layout(
        np.zeros_like(lengths),
        lengths,
        batch_tokens=batch_size * int(lengths.max()),
        batch_size=batch_size,
    )
    return SentenceBatches(tokens, ends - lengths, lengths, layout, seed, shuffle)


@dataclasses.dataclass(frozen=True, eq=False)
class SentenceBatches(RowBatches):
    """The batches of `sentence_batches`.

    Attributes:
        tokens: int32, the text.
        starts, lengths: int64 [n], where each sentence begins and its length with its END.
        layout: which sentences share a batch.
        seed, shuffle: as given.
    """

    tokens: np.ndarray
    starts: np.ndarray
    lengths: np.ndarray
    layout: Layout
    seed: int
    shuffle: bool

    def row_counts(self, epoch: int) -> np.ndarray:
        """Returns the number of rows of each batch of an epoch."""
        return row_counts(self.layout, epoch, self._order_seed)

    def rows(self, choose: ChooseRows, epoch: int, first_step: int) -> tf.data.Dataset:
        """Returns the chosen rows of each batch of an epoch.

        Each element is (inputs, targets), both int32 [rows, length] and padded with 0 at the end:
        the targets are the sentences, the inputs are END followed by all but their last token.
        Every sentence occurs exactly once in an epoch, in an order given by (seed, epoch); long
        and short ones alternate in a batch, so that its shards have about as many tokens.
        """
        return bucketed_epoch(
            self.layout,
            self._assemble,
            epoch=epoch,
            first_step=first_step,
            seed=self._order_seed,
            choose=choose,
        )

    @property
    def _order_seed(self) -> int | None:
        return self.seed if self.shuffle else None

    @property
    def num_examples(self) -> int:
        """The number of tokens in an epoch that are targets."""
        return int(self.lengths.sum())

    @property
    def steps_per_epoch(self) -> int:
        """The number of batches in an epoch, the same in each."""
        return self.layout.num_batches

    def _assemble(
        self, sentences: np.ndarray, shape: np.ndarray, chosen: slice
    ) -> tuple[np.ndarray, np.ndarray]:
        """Returns rows of the batch of some sentences, as long as the longest of them all."""
        rows = sentences[balanced_rows(self.lengths[sentences])[chosen]]
        lengths = self.lengths[rows, None]
        places = np.arange(shape[2])
        targets = self._tokens_at(self.starts[rows, None] + places, places < lengths)
        inputs = self._tokens_at(self.starts[rows, None] + places - 1, places < lengths)
        inputs[:, 0] = END
        return inputs, targets

    def _tokens_at(self, places: np.ndarray, inside: np.ndarray) -> np.ndarray:
        """Returns the tokens at these places, padding where they are outside of a sentence."""
        return np.where(inside, self.tokens[np.where(inside, places, 0)], PAD).astype(np.int32)

"""A text as sentences: each line an example of its own, in batches of like lengths."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from towers.data.batching import draws
from towers.data.batching.buckets import Layout, fitted_layout
from towers.data.batching.pairs import balanced_order
from towers.data.batching.positions import check_position, pairs_from
from towers.data.language.vocabulary import END, PAD

if TYPE_CHECKING:
    import tensorflow as tf


def sentence_batches(
    tokens: np.ndarray, batch_size: int, *, seed: int = 0, shuffle: bool = True
) -> SentenceBatches:
    """Returns `batches(epoch, first_step=0) -> tf.data.Dataset` over the lines of a text.

    Args:
        tokens: int32 [n], every line ended by END.
        batch_size: sentences in a batch at most.
        seed: of the order.
        shuffle: whether each epoch has its own order; else it goes from short to long.

    Raises:
        ValueError: for a batch size below 1, a negative seed, or if there is no whole sentence.
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
class SentenceBatches:
    """What `sentence_batches` returns.

    Attributes:
        tokens: int32, the text.
        begins, lengths: int64 [n], where each sentence begins and how long it is with its END.
        layout: which sentences share a batch.
        seed, shuffle: as given.
    """

    tokens: np.ndarray
    begins: np.ndarray
    lengths: np.ndarray
    layout: Layout
    seed: int
    shuffle: bool

    def __call__(self, epoch: int, first_step: int = 0) -> tf.data.Dataset:
        """Returns the batches of an epoch from one of its steps on.

        Each is a pair (inputs, targets), int32 [batch, length] both, padded with 0 at the end: the
        targets are the sentences, the inputs END and all but the last token of them. Every
        sentence comes exactly once in an epoch, in an order given by (seed, epoch); long and short
        ones alternate in a batch, so that its shards have about as many tokens.

        Args:
            epoch: number of the epoch, from 0.
            first_step: how many of its batches were consumed already.
        """
        check_position(epoch, first_step, self.steps_per_epoch)
        return pairs_from(self._batch_of_step(epoch), first_step, self.steps_per_epoch)

    @property
    def num_examples(self) -> int:
        """How many tokens of an epoch are targets."""
        return int(self.lengths.sum())

    @property
    def steps_per_epoch(self) -> int:
        """How many batches an epoch has; the same number in each."""
        return len(self.layout.shapes)

    def _batch_of_step(self, epoch: int) -> Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]:
        """Returns the function from a step of the epoch to its batch."""
        sentences, numbers = self._order(epoch)
        bounds = self.layout.bounds

        def batch_of_step(step: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            number = numbers[step]
            return self._assemble(sentences[bounds[number] : bounds[number + 1]])

        return batch_of_step

    def _order(self, epoch: int) -> tuple[np.ndarray, np.ndarray]:
        """Returns the epoch's order of the sentences, and that of the batches."""
        sentences, groups, _, _ = self.layout
        if not self.shuffle:
            return sentences, np.arange(self.steps_per_epoch)
        drawn = draws.permutation(len(sentences), seed=self.seed, epoch=epoch)
        numbers = draws.permutation(
            self.steps_per_epoch, seed=self.seed, epoch=epoch, stream=draws.BATCH_ORDER_STREAM
        )
        return sentences[drawn[np.argsort(groups[drawn], kind="stable")]], numbers

    def _assemble(self, sentences: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns the batch of some sentences."""
        rows = sentences[np.argsort(self.lengths[sentences], kind="stable")]
        rows = rows[balanced_order(len(rows))]
        lengths = self.lengths[rows, None]
        places = np.arange(lengths.max())
        targets = self._tokens_at(self.begins[rows, None] + places, places < lengths)
        inputs = self._tokens_at(self.begins[rows, None] + places - 1, places < lengths)
        inputs[:, 0] = END
        return inputs, targets

    def _tokens_at(self, places: np.ndarray, inside: np.ndarray) -> np.ndarray:
        """Returns the tokens at these places, padding where they are not inside of a sentence."""
        return np.where(inside, self.tokens[np.where(inside, places, 0)], PAD).astype(np.int32)

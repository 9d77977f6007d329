"""Batches of question-answer pairs: similar lengths, a token budget, balanced for any towers."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from towers.data.batching.balance import balanced_order
from towers.data.batching.buckets import Layout, fitted_layout, fixed_layout, num_tokens
from towers.data.batching.epochs import ChooseRows, bucketed_epoch, row_counts
from towers.data.batching.row_batches import RowBatches
from towers.data.corpus.copying import number_unknown
from towers.data.corpus.directions import lengths_of, slices_of, written_turns
from towers.data.corpus.repeats import within_repeats
from towers.data.prepared.dialogue_corpus import DialogueCorpus
from towers.data.text import Vocabulary
from towers.ground.special_ids import END, PAD, UNKNOWN

if TYPE_CHECKING:
    import tensorflow as tf


def pair_batches(
    corpus: DialogueCorpus,
    part: str,
    *,
    batch_tokens: int,
    batch_size: int,
    max_question_length: int,
    max_answer_length: int,
    max_answer_repeats: int = 0,
    direction: str = "forward",
    seed: int = 0,
    shuffle: bool = True,
    fixed_shapes: bool = False,
) -> PairBatches:
    """Returns `batches(epoch, first_step=0) -> tf.data.Dataset` over the pairs of a part.

    Args:
        corpus: the prepared corpus.
        part: `train` or `held_out`.
        batch_tokens: maximum number of ids in a batch, of questions and answers, padding
            included; a pair that is longer by itself is a batch of its own.
        batch_size: maximum number of pairs in a batch.
        max_question_length: longer questions lose their first ids.
        max_answer_length: pairs whose answer, with its END, is longer are left out.
        max_answer_repeats: training pairs whose answer occurs more often are left out beyond this
            number, the same ones for every seed; 0 keeps all. The held-out part keeps all.
        direction: forward, backward or answers, as in `slices_of`; what is written takes the place
            of the answer.
        seed: of the order.
        shuffle: whether each epoch has its own order; otherwise it goes from short to long.
        fixed_shapes: whether batches have a few shapes only (at most 16), as compiled towers
            need; there is more padding then, and a batch may lack a row: it is a repeated
            question whose answer is all padding.

    Raises:
        ValueError: a limit is below 1, a number is negative, or no pair is left.
    """
    limits = {
        "batch_tokens": batch_tokens,
        "batch_size": batch_size,
        "max_question_length": max_question_length,
        "max_answer_length": max_answer_length,
    }
    for name, limit in limits.items():
        if limit < 1:
            raise ValueError(f"{name} must be at least 1. Received {limit}.")
    for name, number in (("seed", seed), ("max_answer_repeats", max_answer_repeats)):
        if number < 0:
            raise ValueError(f"{name} must not be negative. Received {number}.")
    pairs = np.asarray(corpus.pairs(part))
    read, written = lengths_of(corpus, pairs, direction)
    kept = written <= max_answer_length
    if not kept.any():
        raise ValueError(
            f"No pair of the {part} part has an answer of at most {max_answer_length} tokens. "
            "Raise max_answer_length."
        )
    pairs, read, written, left_out = *_chosen(kept, pairs, read, written), int(np.sum(~kept))
    num_repeated = 0
    if part == "train" and max_answer_repeats:
        kept = within_repeats(corpus, written_turns(pairs, direction), max_answer_repeats)
        pairs, read, written = _chosen(kept, pairs, read, written)
        num_repeated = int(np.sum(~kept))
    read = np.minimum(read, max_question_length)
    make_layout = fixed_layout if fixed_shapes else fitted_layout
    layout = make_layout(read, written, batch_tokens=batch_tokens, batch_size=batch_size)
    return PairBatches(
        corpus, pairs, direction, read, written, layout, seed, shuffle, left_out, num_repeated
    )


def _chosen(kept: np.ndarray, *arrays: np.ndarray) -> Iterator[np.ndarray]:
    return (array if kept.all() else array[kept] for array in arrays)


@dataclasses.dataclass(frozen=True, eq=False)
class PairBatches(RowBatches):
    """The batches of `pair_batches`.

    Attributes:
        corpus: the prepared corpus.
        pairs: int32 [n, 2], the pairs in use.
        direction: as given.
        read, written: int32 [n], the numbers of their ids that are read and written.
        layout: which pairs share a batch.
        seed, shuffle: as given.
        left_out: number of pairs whose answer is too long.
        num_repeated: number of pairs left out because their answer occurs too often.
    """

    corpus: DialogueCorpus
    pairs: np.ndarray
    direction: str
    read: np.ndarray
    written: np.ndarray
    layout: Layout
    seed: int
    shuffle: bool
    left_out: int
    num_repeated: int = 0

    def row_counts(self, epoch: int) -> np.ndarray:
        """Returns the number of rows of each batch of an epoch."""
        return row_counts(self.layout, epoch, self._order_seed)

    def rows(self, choose: ChooseRows, epoch: int, first_step: int) -> tf.data.Dataset:
        """Returns the chosen rows of each batch of an epoch.

        Each element is (question: int32 [rows, question_length], answer: int32 [rows,
        answer_length]), padded with 0 at the end; answers end with END. With a vocabulary that
        copies, the unknown words of each pair are numbered by `number_unknown`. Every pair occurs
        exactly once in an epoch, in an order given by (seed, epoch).
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
        """The number of pairs in an epoch."""
        return len(self.pairs)

    @property
    def steps_per_epoch(self) -> int:
        """The number of batches in an epoch, the same in each."""
        return self.layout.num_batches

    @functools.cached_property
    def num_characters(self) -> int:
        """The number of characters that are written, the end of each text counted as one."""
        turns = written_turns(self.pairs, self.direction)
        return int(self.corpus.characters[turns].sum()) + len(turns)

    @property
    def padding_share(self) -> float:
        """The share of padding among the ids of an epoch."""
        used = int(self.read.sum() + self.written.sum())
        return 1 - used / num_tokens(self.layout.shapes)

    @property
    def summary(self) -> str:
        """One line about an epoch."""
        reasons = {"longer answers": self.left_out, "answers repeated too often": self.num_repeated}
        left_out = ", ".join(f"{count:,} with {why}" for why, count in reasons.items() if count)
        return (
            f"{self.num_examples:,} pairs in {self.steps_per_epoch:,} batches, "
            f"{self.padding_share:.1%} of the tokens are padding"
            f"{f'; left out: {left_out}' if left_out else ''}"
        )

    def _assemble(
        self, pairs: np.ndarray, shape: np.ndarray, chosen: slice
    ) -> tuple[np.ndarray, np.ndarray]:
        """Returns rows of the batch of some pairs, given its number of rows and its lengths."""
        num_rows, question_length, answer_length = shape
        pairs = pairs[np.argsort(self.read[pairs] + self.written[pairs], kind="stable")]
        num_missing = num_rows - len(pairs)
        rows = np.concatenate([pairs[:1].repeat(num_missing), pairs])
        order = balanced_order(int(num_rows))[chosen]
        rows, counts = rows[order], order >= num_missing

        slices = slices_of(self.corpus, self.pairs[rows], self.direction)
        ends, (starts, stops) = slices.read[:, 1], slices.written.T
        question = self._slices(ends - self.read[rows], ends, question_length)
        answer = self._slices(starts, stops, answer_length)
        answer[np.arange(len(rows)), self.written[rows] - 1] = END
        if self.direction == "answers":
            question[:] = UNKNOWN
        answer[~counts] = PAD
        if vocabulary := self._copying:
            question, answer = number_unknown(question, answer, vocabulary)
        return question, answer

    @functools.cached_property
    def _copying(self) -> Vocabulary | None:
        """The vocabulary if it has copies."""
        vocabulary = self.corpus.text.vocabulary
        return vocabulary if vocabulary.copies else None

    def _slices(self, starts: np.ndarray, ends: np.ndarray, length: int) -> np.ndarray:
        """Returns slices of the tokens as int32 [n, length], padded."""
        places = starts[:, None] + np.arange(length)
        inside = places < ends[:, None]
        tokens = self.corpus.tokens[np.where(inside, places, starts[:, None])]
        return np.where(inside, tokens, PAD).astype(np.int32)

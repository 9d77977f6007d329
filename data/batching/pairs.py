"""Batches of pairs: of like lengths, within a budget of tokens, balanced for any towers."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from towers.data.batching import draws
from towers.data.batching.buckets import Layout, fitted_layout, fixed_layout, num_tokens
from towers.data.batching.positions import check_position, pairs_from
from towers.data.corpus.cache import PreparedPairs, answer_lengths, question_lengths
from towers.data.text import END, PAD

if TYPE_CHECKING:
    import tensorflow as tf


def pair_batches(
    prepared: PreparedPairs,
    part: str,
    *,
    batch_tokens: int,
    batch_size: int,
    max_question_length: int,
    max_answer_length: int,
    seed: int = 0,
    shuffle: bool = True,
    fixed_shapes: bool = False,
) -> PairBatches:
    """Returns `batches(epoch, first_step=0) -> tf.data.Dataset` over the pairs of a part.

    Args:
        prepared: the corpus.
        part: `train` or `held_out`.
        batch_tokens: ids in a batch at most, of questions and answers, padding included; a pair
            that is longer by itself is a batch of its own.
        batch_size: pairs in a batch at most.
        max_question_length: of longer questions the last ids are kept.
        max_answer_length: pairs whose answer with its END is longer are left out.
        seed: of the order.
        shuffle: whether each epoch has its own order; else it goes from short to long.
        fixed_shapes: whether batches have a few shapes only (at most 16), as compiled towers
            want; there is more padding then, and a row may be missing in a batch: it is a
            repeated question whose answer is all padding.

    Raises:
        ValueError: for a limit below 1, or if no pair is left.
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
    if seed < 0:
        raise ValueError(f"seed must not be negative. Received {seed}.")
    pairs = np.asarray(prepared.pairs(part))
    kept = answer_lengths(prepared, pairs) <= max_answer_length
    if not kept.any():
        raise ValueError(
            f"No pair of the {part} part has an answer of at most {max_answer_length} tokens. "
            "Raise max_answer_length."
        )
    pairs = pairs[kept]
    questions = np.minimum(question_lengths(prepared, pairs), max_question_length)
    answers = answer_lengths(prepared, pairs)
    make_layout = fixed_layout if fixed_shapes else fitted_layout
    layout = make_layout(questions, answers, batch_tokens=batch_tokens, batch_size=batch_size)
    return PairBatches(
        prepared, pairs, questions, answers, layout, seed, shuffle, left_out=int(np.sum(~kept))
    )


@dataclasses.dataclass(frozen=True, eq=False)
class PairBatches:
    """What `pair_batches` returns.

    Attributes:
        prepared: the corpus.
        pairs: int32 [n, 2], those that are used.
        questions, answers: int64 [n], their lengths as they are batched.
        layout: which pairs share a batch.
        seed, shuffle: as given.
        left_out: pairs whose answer is too long.
    """

    prepared: PreparedPairs
    pairs: np.ndarray
    questions: np.ndarray
    answers: np.ndarray
    layout: Layout
    seed: int
    shuffle: bool
    left_out: int

    def __call__(self, epoch: int, first_step: int = 0) -> tf.data.Dataset:
        """Returns the batches of an epoch from one of its steps on.

        Each is a pair (question: int32 [batch, question_length], answer: int32 [batch,
        answer_length]), padded with 0 at the end; answers end with END. Every pair comes exactly
        once in an epoch, in an order given by (seed, epoch).

        Args:
            epoch: number of the epoch, from 0.
            first_step: how many of its batches were consumed already.
        """
        check_position(epoch, first_step, self.steps_per_epoch)
        return pairs_from(self._batch_of_step(epoch), first_step, self.steps_per_epoch)

    @property
    def num_examples(self) -> int:
        """How many pairs an epoch has."""
        return len(self.pairs)

    @property
    def steps_per_epoch(self) -> int:
        """How many batches an epoch has; the same number in each."""
        return len(self.layout.shapes)

    @functools.cached_property
    def num_characters(self) -> int:
        """How many characters the answers have, the end of each counted as one."""
        return int(self.prepared.characters[self.pairs[:, 1]].sum()) + len(self.pairs)

    @property
    def padding_share(self) -> float:
        """The share of padding among the ids of an epoch."""
        used = int(self.questions.sum() + self.answers.sum())
        return 1 - used / num_tokens(self.layout.shapes)

    @property
    def summary(self) -> str:
        """A line about an epoch."""
        left_out = f"; left out: {self.left_out:,} with longer answers" if self.left_out else ""
        return (
            f"{self.num_examples:,} pairs in {self.steps_per_epoch:,} batches, "
            f"{self.padding_share:.1%} of the tokens are padding{left_out}"
        )

    def _batch_of_step(self, epoch: int) -> Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]:
        """Returns the function from a step of the epoch to its batch."""
        pairs, numbers = self._order(epoch)

        def batch_of_step(step: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            number = numbers[step]
            chosen = pairs[self.layout.bounds[number] : self.layout.bounds[number + 1]]
            return self._assemble(chosen, self.layout.shapes[number])

        return batch_of_step

    def _order(self, epoch: int) -> tuple[np.ndarray, np.ndarray]:
        """Returns the epoch's order of the pairs, and that of the batches."""
        pairs, groups, _, _ = self.layout
        if not self.shuffle:
            return pairs, np.arange(self.steps_per_epoch)
        drawn = draws.permutation(len(pairs), seed=self.seed, epoch=epoch)
        numbers = draws.permutation(
            self.steps_per_epoch, seed=self.seed, epoch=epoch, stream=draws.BATCH_ORDER_STREAM
        )
        return pairs[drawn[np.argsort(groups[drawn], kind="stable")]], numbers

    def _assemble(self, pairs: np.ndarray, shape: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns the batch of some pairs, given its rows and lengths."""
        num_rows, question_length, answer_length = shape
        pairs = pairs[np.argsort(self.questions[pairs] + self.answers[pairs], kind="stable")]
        num_missing = num_rows - len(pairs)
        rows = np.concatenate([pairs[:1].repeat(num_missing), pairs])
        order = balanced_order(int(num_rows))
        rows, counts = rows[order], order >= num_missing

        answers_from, turns_end = self.prepared.offsets[self.pairs[rows, 1:2] + [[0, 1]]].T
        # A SEPARATOR stands behind the question's last turn, and where the answer's END belongs.
        questions_from = answers_from - 1 - self.questions[rows]
        question = self._slices(questions_from, answers_from - 1, question_length)
        answer = self._slices(answers_from, turns_end, answer_length)
        answer[np.arange(num_rows), self.answers[rows] - 1] = END
        answer[~counts] = PAD
        return question, answer

    def _slices(self, starts: np.ndarray, ends: np.ndarray, length: int) -> np.ndarray:
        """Returns slices of the tokens as int32 [n, length], padded."""
        places = starts[:, None] + np.arange(length)
        inside = places < ends[:, None]
        tokens = self.prepared.tokens[np.where(inside, places, starts[:, None])]
        return np.where(inside, tokens, PAD).astype(np.int32)


@functools.lru_cache(maxsize=1024)
def balanced_order(num_rows: int) -> np.ndarray:
    """Returns an order of sorted rows in which every contiguous block has long and short ones.

    Places follow the sequence of van der Corput (1935), whose stretches are evenly spread. Each
    binary digit is replaced by the parity of the digits up to it, since otherwise the numbers
    would tend to rise; so the sums of the blocks differ by about one long row at most.
    """
    num_bits = max(1, (num_rows - 1).bit_length())
    numbers = np.arange(num_rows)
    mirrored, parity = np.zeros((2, num_rows), np.int64)
    for bit in range(num_bits):
        parity ^= (numbers >> bit) & 1
        mirrored |= parity << (num_bits - 1 - bit)
    return np.argsort(np.argsort(mirrored))

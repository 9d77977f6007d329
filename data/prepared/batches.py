"""Batches of pairs: of like lengths, within a budget of tokens, balanced for any towers."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable

import numpy as np
import tensorflow as tf

from data import draws
from data.prepared.cache import PreparedPairs, answer_lengths, question_lengths
from data.text import END, PAD


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
    answers = answer_lengths(prepared, pairs)
    kept = answers <= max_answer_length
    if not kept.any():
        raise ValueError(
            f"No pair of the {part} part has an answer of at most {max_answer_length} tokens. "
            "Raise max_answer_length."
        )
    questions = np.minimum(question_lengths(prepared, pairs[kept]), max_question_length)
    return PairBatches(
        prepared,
        pairs[kept],
        questions,
        answers[kept],
        batch_tokens,
        batch_size,
        seed,
        shuffle,
        left_out=int(np.sum(~kept)),
    )


@dataclasses.dataclass(frozen=True, eq=False)
class PairBatches:
    """What `pair_batches` returns.

    Attributes:
        prepared: the corpus.
        pairs: int32 [n, 2], those that are used.
        questions, answers: int64 [n], their lengths as they are batched.
        batch_tokens, batch_size, seed, shuffle: as given.
        left_out: pairs whose answer is too long.
    """

    prepared: PreparedPairs
    pairs: np.ndarray
    questions: np.ndarray
    answers: np.ndarray
    batch_tokens: int
    batch_size: int
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
        if epoch < 0 or not 0 <= first_step <= self.steps_per_epoch:
            raise ValueError(
                f"An epoch has {self.steps_per_epoch} batches, and epochs count from 0. Received "
                f"epoch={epoch}, first_step={first_step}."
            )
        spec = tf.TensorSpec([None, None], tf.int32)
        batch_of_step = self._batch_of_step(epoch)

        @tf.autograph.experimental.do_not_convert
        def load(step: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            question, answer = tf.numpy_function(batch_of_step, [step], [tf.int32, tf.int32])
            return tf.ensure_shape(question, spec.shape), tf.ensure_shape(answer, spec.shape)

        return (
            tf.data.Dataset.range(first_step, self.steps_per_epoch)
            .map(load, num_parallel_calls=2, deterministic=True)
            .prefetch(4)
        )

    @property
    def num_examples(self) -> int:
        """How many pairs an epoch has."""
        return len(self.pairs)

    @property
    def steps_per_epoch(self) -> int:
        """How many batches an epoch has; the same number in each."""
        return len(self._bounds) - 1

    @functools.cached_property
    def num_characters(self) -> int:
        """How many characters the answers have, the end of each counted as one."""
        return int(self.prepared.characters[self.pairs[:, 1]].sum()) + len(self.pairs)

    @functools.cached_property
    def padding_share(self) -> float:
        """The share of padding among the ids of an epoch."""
        widths = np.stack([self.questions, self.answers])[:, self._sorted]
        longest = np.maximum.reduceat(widths, self._bounds[:-1], axis=1).sum(0)
        computed = np.sum(longest * np.diff(self._bounds))
        return 1 - float(widths.sum() / computed)

    @functools.cached_property
    def _sorted(self) -> np.ndarray:
        """The pairs by answer length, then by question length, up and down in turns."""
        snake = np.where(self.answers % 2 == 0, self.questions, -self.questions)
        return np.lexsort([snake, self.answers])

    @functools.cached_property
    def _bounds(self) -> np.ndarray:
        """Where each batch begins among the sorted pairs, and where the last one ends.

        Only the lengths matter, so that every epoch has the same shapes.
        """
        bounds, start, order = [0], 0, self._sorted
        while start < len(order):
            window = order[start : start + self.batch_size]
            longest = np.maximum.accumulate(self.questions[window])
            longest = longest + np.maximum.accumulate(self.answers[window])
            rows = np.arange(1, len(window) + 1)
            start += max(1, int(np.searchsorted(rows * longest, self.batch_tokens, "right")))
            bounds.append(start)
        return np.array(bounds)

    def _batch_of_step(self, epoch: int) -> Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]:
        """Returns the function from a step of the epoch to its batch."""
        order, numbers = self._order(epoch)

        def batch_of_step(step: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            number = numbers[step]
            rows = order[self._bounds[number] : self._bounds[number + 1]]
            rows = rows[np.argsort(self.questions[rows] + self.answers[rows], kind="stable")]
            return self._assemble(rows[balanced_order(len(rows))])

        return batch_of_step

    def _order(self, epoch: int) -> tuple[np.ndarray, np.ndarray]:
        """Returns the epoch's order of the pairs, and that of the batches.

        Pairs change places with others of the same lengths only.
        """
        if not self.shuffle:
            return self._sorted, np.arange(self.steps_per_epoch)
        drawn = draws.permutation(len(self.pairs), seed=self.seed, epoch=epoch)
        ranks = np.empty(len(self.pairs), np.int64)
        ranks[self._sorted] = self._group_numbers
        order = drawn[np.argsort(ranks[drawn], kind="stable")]
        numbers = draws.permutation(self.steps_per_epoch, seed=self.seed, epoch=epoch)
        return order, numbers

    @functools.cached_property
    def _group_numbers(self) -> np.ndarray:
        """For each of the sorted pairs the number of its pair of lengths."""
        lengths = np.stack([self.questions, self.answers])[:, self._sorted]
        changes = np.any(np.diff(lengths, axis=1) != 0, axis=0)
        return np.concatenate([[0], np.cumsum(changes)])

    def _assemble(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns the batch of some pairs."""
        offsets, pairs = self.prepared.offsets, self.pairs[rows]
        questions, answers = self.questions[rows], self.answers[rows]
        # A SEPARATOR stands behind the question's last turn, and where the answer's END belongs.
        question = self._slices(offsets[pairs[:, 1]] - 1 - questions, questions)
        answer = self._slices(offsets[pairs[:, 1]], answers)
        answer[np.arange(len(rows)), answers - 1] = END
        return question, answer

    def _slices(self, starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        """Returns slices of the tokens as int32 [n, longest], padded."""
        columns = np.arange(lengths.max())
        inside = columns < lengths[:, None]
        places = np.where(inside, starts[:, None] + columns, starts[:, None])
        return np.where(inside, self.prepared.tokens[places], PAD).astype(np.int32)


@functools.lru_cache(maxsize=1024)
def balanced_order(num_rows: int) -> np.ndarray:
    """Returns an order of sorted rows in which every contiguous block has long and short ones.

    The rows are laid out by the van der Corput sequence, whose stretches are evenly spread.
    """
    bits = max(1, (num_rows - 1).bit_length())
    numbers = np.arange(num_rows)
    mirrored = np.zeros(num_rows, np.int64)
    for bit in range(bits):
        mirrored |= ((numbers >> bit) & 1) << (bits - 1 - bit)
    return np.argsort(np.argsort(mirrored))

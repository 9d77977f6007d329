"""Buckets: batches of examples of similar lengths, or of a few fixed shapes, and rows in balance.

An example has two lengths, of its question and of its answer; the first is 0 for a sentence.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import numpy as np

from towers.ground.epochs import Layout

WIDTHS = (1, 3, 6)  # Numbers of neighbouring answer lengths that are tried as one bucket.
NUM_EDGES = 4  # Padded lengths of questions, and of answers, where shapes are fixed.


def fitted_layout(
    questions: np.ndarray, answers: np.ndarray, *, batch_tokens: int, batch_size: int
) -> Layout:
    """Returns batches with little padding, each as long as its longest question and answer.

    A batch's shape is its number of rows, the length of its questions and that of its answers.

    Examples are sorted by the length of the answer, then by the length of the question, which
    rises for one answer length and falls for the next, and cut wherever a batch is full. A small
    corpus has less padding if neighbouring answer lengths are one bucket; the best of `WIDTHS` is
    taken.

    Args:
        questions, answers: integers [n], their lengths; at least one example.
        batch_tokens: maximum of rows * (length of questions + length of answers); a longer
            example is a batch of its own.
        batch_size: maximum number of rows.
    """
    cells = _cells(questions, answers)
    layouts = [_snake_layout(cells, width, batch_tokens, batch_size) for width in WIDTHS]
    best = min(layouts, key=lambda layout: num_tokens(layout.shapes))
    groups = np.argsort(best.order).astype(cells.of_examples.dtype)[cells.of_examples]
    # Integers of 16 bits are sorted by their digits, ten times as fast.
    examples = np.argsort(groups, kind="stable")
    return Layout(examples, groups[examples], best.bounds, best.shapes, batches_move=True)


def num_tokens(shapes: np.ndarray) -> int:
    """Returns the number of ids in batches of these shapes, padding included."""
    rows, questions, answers = shapes.T
    return int(np.sum(rows * (questions + answers)))


class _Cells(NamedTuple):
    """The examples by their two lengths: some thousands of cells, however many examples there are.

    Attributes:
        of_examples: unsigned [n], the cell of each.
        counts: int64 [cells], the number of examples in each.
        questions, answers: int64 [cells], the lengths of their examples.
    """

    of_examples: np.ndarray
    counts: np.ndarray
    questions: np.ndarray
    answers: np.ndarray


def _cells(questions: np.ndarray, answers: np.ndarray) -> _Cells:
    span = int(questions.max()) + 1
    keys = answers.astype(np.int64) * span + questions
    if int(answers.max()) * span < 1 << 24:  # Counted in a table, which is faster than sorting.
        sizes = np.bincount(keys)
        found = np.flatnonzero(sizes)
        counts, index_of = sizes[found], np.zeros(len(sizes), np.int64)
        index_of[found] = np.arange(len(found))
        of_examples = index_of.astype(np.min_scalar_type(len(found)))[keys]
    else:
        found, indices, counts = np.unique(keys, return_inverse=True, return_counts=True)
        of_examples = indices.astype(np.min_scalar_type(len(found)))
    return _Cells(of_examples, counts, *np.divmod(found, span)[::-1])


class _CellLayout(NamedTuple):
    """The order of the cells, and the batches, as in `Layout`."""

    order: np.ndarray
    bounds: np.ndarray
    shapes: np.ndarray


def _snake_layout(cells: _Cells, width: int, batch_tokens: int, batch_size: int) -> _CellLayout:
    """Returns the batches if `width` neighbouring answer lengths are one bucket."""
    questions, answers = cells.questions, cells.answers
    buckets = answers // width
    order = np.lexsort([answers, np.where(buckets % 2 == 0, questions, -questions), buckets])
    runs = questions[order], answers[order], np.cumsum(cells.counts[order])
    return _CellLayout(order, *_full_batches(*runs, batch_tokens, batch_size))


def _full_batches(
    questions: np.ndarray,
    answers: np.ndarray,
    ends: np.ndarray,
    batch_tokens: int,
    batch_size: int,
) -> tuple[np.ndarray, np.ndarray]:
    """Returns bounds and shapes of batches that are as full as the limits allow.

    Args:
        questions, answers: int64 [runs], the lengths in each run of equal examples.
        ends: int64 [runs], where each run ends.
        batch_tokens, batch_size: as in `fitted_layout`.
    """
    bounds, shapes = [np.zeros(1, np.int64)], []
    start = 0
    while start < ends[-1]:
        rows = np.arange(start, min(start + batch_size, ends[-1]))
        runs = np.searchsorted(ends, rows, "right")
        longest = [np.maximum.accumulate(lengths[runs]) for lengths in (questions, answers)]
        tokens = sum(longest) * np.arange(1, len(rows) + 1)
        size = max(1, int(np.searchsorted(tokens, batch_tokens, "right")))
        # As many such batches as a run has of equal examples; one where a run ends.
        number = max(1, (int(ends[runs[0]]) - start - batch_size) // size + 1)
        bounds.append(start + size * np.arange(1, number + 1))
        shapes += [(size, *(lengths[size - 1] for lengths in longest))] * number
        start += number * size
    return np.concatenate(bounds), np.array(shapes)


def fixed_layout(
    questions: np.ndarray, answers: np.ndarray, *, batch_tokens: int, batch_size: int
) -> Layout:
    """Returns batches of at most `NUM_EDGES` squared shapes; arguments as in `fitted_layout`.

    Lengths are padded to the edges that need the least padding. Examples with the same edges are
    divided into batches as evenly as possible, so that a batch lacks at most one row.
    """
    padded = [edges_of(lengths)[lengths] for lengths in (questions, answers)]
    examples = np.lexsort(padded)
    lengths = np.stack(padded, axis=1)[examples]
    starts = np.flatnonzero(np.any(np.diff(lengths, axis=0, prepend=0) != 0, axis=1))
    sizes = np.diff(starts, append=len(examples))
    bounds, shapes = [np.zeros(1, np.int64)], []
    for start, size in zip(starts, sizes, strict=True):
        most_rows = min(batch_size, max(1, batch_tokens // int(lengths[start].sum())))
        num_batches = -(-size // most_rows)
        bounds.append(start + np.arange(1, num_batches + 1) * size // num_batches)
        shapes += [(-(-size // num_batches), *lengths[start])] * num_batches
    groups = np.repeat(np.arange(len(sizes)), sizes).astype(np.min_scalar_type(len(sizes)))
    return Layout(examples, groups, np.concatenate(bounds), np.array(shapes), batches_move=True)


def edges_of(lengths: np.ndarray) -> np.ndarray:
    """Returns int64 [longest + 1], the edge that each length is padded to.

    The `NUM_EDGES` edges are those with the least padding, found by dynamic programming.
    """
    values, counts = np.unique(lengths, return_counts=True)
    before = np.concatenate([[0], np.cumsum(counts)])
    first, last = np.indices((len(values), len(values)))
    # The cost of the values from `first` to `last` if all of them are padded to `last`.
    costs = np.where(first <= last, values * (before[last + 1] - before[first]), np.inf)
    best, choices = costs[0], []
    for _ in range(min(NUM_EDGES, len(values)) - 1):
        totals = np.concatenate([[0], best[:-1]])[:, None] + costs
        choices.append(totals.argmin(0))
        best = totals.min(0)
    chosen, end = [values[-1]], len(values) - 1
    for choice in reversed(choices):
        end = choice[end] - 1
        if end < 0:
            break
        chosen.append(values[end])
    edges = np.sort(chosen)
    return edges[np.searchsorted(edges, np.arange(values[-1] + 1))]


@functools.lru_cache(maxsize=1024)
def balanced_order(num_rows: int) -> np.ndarray:
    """Returns an order of sorted rows in which every contiguous block has long and short ones.

    Places follow the sequence of van der Corput (1935), whose sections are evenly distributed.
    Each binary digit is replaced by the parity of the digits up to it, because the plain sequence
    tends to rise; with parities the sums of the blocks differ by about one long row at most.
    """
    num_bits = max(1, (num_rows - 1).bit_length())
    numbers = np.arange(num_rows)
    mirrored, parity = np.zeros((2, num_rows), np.int64)
    for bit in range(num_bits):
        parity ^= (numbers >> bit) & 1
        mirrored |= parity << (num_bits - 1 - bit)
    return np.argsort(np.argsort(mirrored))

"""The pairs of question and answer in a corpus, and those of them that both parts have."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from towers.data.prepared.dialogue_index import (
    BEGINS,
    HAS_ROLES,
    HELD_OUT,
    TRAINED,
    Block,
    DialogueIndex,
)

_ODD = np.uint64(0x9E3779B97F4A7C15)  # Knuth's multiplicative hashing, the golden ratio in 64 bits.
_PLACE = np.uint64(1 << 32)  # Words are smaller.
_FEW, _ENOUGH = 10, 1000  # Held-out pairs.


class PairFinder:
    """Finds the pairs whose answer is in a block; blocks come in order.

    Attributes:
        num_empty: number of pairs left out because their answer, or the turn before it, is empty.
        num_unpaired: number of turns that are in no pair.
    """

    def __init__(self, pairing: str, context: int):
        self._alternates, self._context = pairing == "alternate", context
        self._num_turns = self._start = 0
        self._was_empty = True
        self.num_empty = self.num_unpaired = 0

    def find(self, block: Block) -> np.ndarray:
        """Returns the first turn of the question and the turn of the answer, int32 [pairs, 2]."""
        begins, has_roles = ((block.marks & bit) > 0 for bit in (BEGINS, HAS_ROLES))
        is_empty = block.num_words == 0
        turns = np.arange(self._num_turns, self._num_turns + len(begins))
        starts = np.maximum.accumulate(np.where(begins, turns, self._start))
        within = turns - starts
        is_answer = (within > 0) & ((within % 2 == 1) | ~(self._alternates | has_roles))
        self.num_unpaired += (
            len(turns) - 2 * int(np.sum(is_answer))
            if self._alternates
            else int(np.sum(begins)) - int(np.sum(within == 1))
        )
        before = np.concatenate([[self._was_empty], is_empty[:-1]])
        is_usable = is_answer & ~is_empty & ~before
        self.num_empty += int(np.sum(is_answer & ~is_usable))
        self._num_turns += len(begins)
        if len(begins):
            self._start, self._was_empty = int(starts[-1]), bool(is_empty[-1])
        answers = turns[is_usable]
        firsts = np.maximum(starts[is_usable], answers - 1 - self._context)
        return np.stack([firsts, answers], axis=1).astype(np.int32)


class Pairs(NamedTuple):
    """The pairs whose answers are in a block.

    Attributes:
        turns: int32 [pairs, 2], as `PairFinder` finds them.
        hashes: uint64 [pairs], of the last turn of the question with the answer.
        is_held_out: bool [pairs].
    """

    turns: np.ndarray
    hashes: np.ndarray
    is_held_out: np.ndarray

    def only(self, chosen: np.ndarray) -> Pairs:
        """Returns those that a mask chooses."""
        return Pairs(*(array[chosen] for array in self))


def blocks_with_pairs(
    index: DialogueIndex, finder: PairFinder, hashed: int
) -> Iterator[tuple[Block, Pairs]]:
    """Yields the blocks of an index with their pairs.

    Args:
        index: of the dialogues.
        finder: of pairs, from the first block on.
        hashed: bits of the marks of those turns that are hashed; the hash of others is 0.
    """
    last = np.zeros(1, np.uint64)
    for block in index.blocks():
        turns = finder.find(block)
        hashes = np.concatenate([last, _hashes(block, (block.marks & hashed) > 0)])
        last = hashes[-1:]
        answers = turns[:, 1] - block.first_turn
        is_held_out = (block.marks[answers] & HELD_OUT) > 0
        yield block, Pairs(turns, hashes[answers] * _ODD + hashes[answers + 1], is_held_out)


class Repeats(NamedTuple):
    """The pairs that are in both parts.

    Attributes:
        given_up: uint64, sorted: the hashes of those that training gives up, and of those that the
            held-out part does.
        kept_apart: whether they are given up; else they are only counted.
    """

    given_up: tuple[np.ndarray, np.ndarray]
    kept_apart: bool

    def of(self, pairs: Pairs) -> np.ndarray:
        """Returns which pairs the part that they are in gives up, bool."""
        train, held_out = (_is_in(pairs.hashes, hashes) for hashes in self.given_up)
        return np.where(pairs.is_held_out, held_out, train)


def find_repeats(index: DialogueIndex, finders: Iterator[PairFinder], *, apart: bool) -> Repeats:
    """Returns the pairs that both parts have; in memory are the hashes of the held-out ones.

    The held-out part gives them up, but for as many, the most frequent there, as it needs besides
    its own, a fifth of all, or half of a few: these training gives up. The only pair of a corpus
    stays in both.

    Args:
        index: of the dialogues.
        finders: of pairs, two.
        apart: whether they may be given up.
    """
    blocks = blocks_with_pairs(index, next(finders), HELD_OUT)
    found = [pairs.hashes[pairs.is_held_out] for _, pairs in blocks]
    held_out = np.sort(np.concatenate([np.zeros(0, np.uint64), *found]))
    is_trained = np.zeros(len(held_out), bool)
    num_others = 0
    for _, pairs in blocks_with_pairs(index, next(finders), TRAINED):
        trained = pairs.hashes[~pairs.is_held_out]
        num_others += len(trained)
        trained = trained[_is_in(trained, held_out)]
        num_others -= len(trained)
        is_trained |= np.isin(held_out, trained) if len(trained) else False
    repeated, counts = np.unique(held_out[is_trained], return_counts=True)
    num_own = int(np.sum(~is_trained))
    num_needed = min(_ENOUGH, max(1, min(len(held_out) // 2, _FEW), len(held_out) // 5))
    num_wanted = num_needed - num_own
    order = np.argsort(-counts, kind="stable")
    num_kept = int(np.searchsorted(np.cumsum(counts[order]), num_wanted)) + 1
    most = len(repeated) - (not num_others)  # Some must be trained on.
    num_kept = max(0, min(num_kept, most)) if num_wanted > 0 else 0
    kept, left = (np.sort(repeated[part]) for part in (order[:num_kept], order[num_kept:]))
    return Repeats((kept, left), apart and bool(num_kept or num_own))


def _is_in(values: np.ndarray, some: np.ndarray) -> np.ndarray:
    """Returns which values are among some sorted ones."""
    if not len(some):
        return np.zeros(len(values), bool)
    places = np.minimum(np.searchsorted(some, values), len(some) - 1)
    return some[places] == values


def _hashes(block: Block, chosen: np.ndarray) -> np.ndarray:
    """Returns a hash of the words of each chosen turn, uint64, 0 for the others."""
    hashes = np.zeros(len(chosen), np.uint64)
    if not chosen.any():
        return hashes
    num_words = block.num_words[chosen]
    words = block.words if chosen.all() else block.words[np.repeat(chosen, block.num_words)]
    ends = np.cumsum(num_words, dtype=np.int64)
    starts = ends - num_words
    mixed = np.arange(len(words), dtype=np.uint64)
    mixed -= np.repeat(starts.astype(np.uint64), num_words)  # The place in its turn.
    mixed *= _PLACE
    mixed += words
    mixed *= _ODD
    mixed ^= mixed >> np.uint64(32)
    mixed *= _ODD
    sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum(mixed, dtype=np.uint64)])
    hashes[chosen] = sums[ends] - sums[starts]
    return hashes

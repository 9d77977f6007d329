"""The pairs of question and answer in a corpus, and those of them that both parts have."""

from __future__ import annotations

from collections.abc import Callable
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


class Pairs(NamedTuple):
    """The pairs of a block.

    Attributes:
        turns: int32 [pairs, 2], the first turn of the question and the turn of the answer.
        hashes: uint64 [pairs], of the last turn of the question with the answer.
        is_held_out: bool [pairs].
        num_empty: number of pairs left out because their answer, or the turn before it, is empty.
        num_unpaired: number of turns that are in no pair.
    """

    turns: np.ndarray
    hashes: np.ndarray
    is_held_out: np.ndarray
    num_empty: int
    num_unpaired: int


def find_pairs(block: Block, pairing: str, context: int, hashed: int) -> Pairs:
    """Returns the pairs of a block.

    Args:
        block: of whole dialogues.
        pairing, context: as in `DialoguePreparation`.
        hashed: bits of the marks of those turns that are hashed; the hash of others is 0.
    """
    begins, has_roles = ((block.marks & bit) > 0 for bit in (BEGINS, HAS_ROLES))
    alternates, is_empty = pairing == "alternate", block.num_words == 0
    turns = np.arange(len(begins))
    starts = np.maximum.accumulate(np.where(begins, turns, 0))
    within = turns - starts
    is_answer = (within > 0) & ((within % 2 == 1) | ~(alternates | has_roles))
    num_answers = int(np.sum(is_answer))
    num_alone = int(np.sum(begins)) - int(np.sum(within == 1))
    answers = np.flatnonzero(is_answer & ~is_empty & ~np.roll(is_empty, 1))
    firsts = np.maximum(starts[answers], answers - 1 - context)
    hashes = _hashes(block, (block.marks & hashed) > 0)
    return Pairs(
        (block.first_turn + np.stack([firsts, answers], axis=1)).astype(np.int32),
        hashes[answers - 1] * _ODD + hashes[answers],
        (block.marks[answers] & HELD_OUT) > 0,
        num_empty=num_answers - len(answers),
        num_unpaired=len(turns) - 2 * num_answers if alternates else num_alone,
    )


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


def find_repeats(index: DialogueIndex, find: Callable[..., Pairs], *, apart: bool) -> Repeats:
    """Returns the pairs that both parts have; in memory are the hashes of the held-out ones.

    The held-out part gives them up, but for as many, the most frequent there, as it needs besides
    its own, a fifth of all, or half of a few: these training gives up. The only pair of a corpus
    stays in both.

    Args:
        index: of the dialogues.
        find: `find_pairs` for its pairs, but for the turns to hash.
        apart: whether they may be given up.
    """
    in_blocks = (find(block, hashed=HELD_OUT) for block in index.blocks())
    found = [pairs.hashes[pairs.is_held_out] for pairs in in_blocks]
    held_out = np.sort(np.concatenate([np.zeros(0, np.uint64), *found]))
    is_trained = np.zeros(len(held_out), bool)
    num_others = 0
    for block in index.blocks():
        pairs = find(block, hashed=TRAINED)
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

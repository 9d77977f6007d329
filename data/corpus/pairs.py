"""The pairs of a corpus, found in one block of its turns after another."""

from __future__ import annotations

import numpy as np

from towers.data.dialogues.pairing import stride


class PairFinder:
    """Finds the pairs whose answer is in a block; blocks come in order.

    Args:
        pairing, context: as in `pair_turns`.

    Attributes:
        num_empty: number of pairs left out because their answer, or the turn before it, is empty.
        num_unpaired: number of turns that are in no pair.
    """

    def __init__(self, *, pairing: str, context: int):
        self._stride, self._context = stride(pairing), context
        self._num_turns = self._start = 0
        self._was_empty = True
        self.num_empty = self.num_unpaired = 0

    def find(self, begins: np.ndarray, is_empty: np.ndarray) -> np.ndarray:
        """Returns the first turn of the question and the turn of the answer, int32 [pairs, 2].

        Args:
            begins: bool, whether each turn of the block begins a dialogue.
            is_empty: bool, whether it has no token.
        """
        turns = np.arange(self._num_turns, self._num_turns + len(begins))
        starts = np.maximum.accumulate(np.where(begins, turns, self._start))
        places = turns - starts
        is_answer = places % 2 == 1 if self._stride == 2 else places > 0
        self.num_unpaired += (
            len(turns) - 2 * int(np.sum(is_answer))
            if self._stride == 2
            else int(np.sum(begins)) - int(np.sum(places == 1))
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

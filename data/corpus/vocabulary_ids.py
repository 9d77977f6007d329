"""Provisional numbers of tokens to the ids of the vocabulary, in whole blocks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from towers.data.text import build_vocabulary


class VocabularyIds:
    """The vocabulary of a corpus, and the ids that stand for each of its tokens.

    Args:
        tokens: every token of the corpus; its place is its provisional number.
        counts: how often each occurs where the vocabulary is taken from.
        size: of the vocabulary, at most.
    """

    def __init__(self, tokens: Sequence[str], counts: Mapping[str, int], size: int):
        self.vocabulary = build_vocabulary(counts, size)
        spelled = [self.vocabulary.ids(token) for token in tokens]
        self._lengths = np.array([len(ids) for ids in spelled], np.int64)
        self._starts = np.cumsum(self._lengths) - self._lengths
        self._pieces = np.array([one for ids in spelled for one in ids], np.uint32)

    def final_lengths(self, source: np.ndarray, offsets: np.ndarray, block: slice) -> np.ndarray:
        """Returns how many ids each turn of a block gets, a separator included unless empty.

        Args:
            source: uint32, the provisional numbers of all turns.
            offsets: int64 [num_turns + 1], where each turn begins in them.
            block: the turns.
        """
        bounds = offsets[block.start : block.stop + 1]
        ends = np.cumsum(self._lengths[source[bounds[0] : bounds[-1]]])
        ends = np.concatenate([[0], ends])[bounds - bounds[0]]
        lengths = np.diff(ends)
        return lengths + (lengths > 0)

    def final_ids(
        self, source: np.ndarray, offsets: np.ndarray, block: slice, separator: int
    ) -> np.ndarray:
        """Returns the ids of the turns of a block, a separator after each that is not empty."""
        bounds = offsets[block.start : block.stop + 1]
        numbers = source[bounds[0] : bounds[-1]]
        lengths = self._lengths[numbers]
        ends = np.cumsum(lengths)
        within = np.arange(lengths.sum()) - np.repeat(ends - lengths, lengths)
        ids = self._pieces[np.repeat(self._starts[numbers], lengths) + within]
        turn_ends = np.concatenate([[0], ends])[bounds - bounds[0]]
        places = turn_ends[1:][np.diff(turn_ends) > 0]
        return np.insert(ids, places, separator)

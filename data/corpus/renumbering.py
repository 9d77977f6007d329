"""From the provisional ids of a corpus to the ids of its vocabulary, in whole blocks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from towers.data.corpus.settings import CorpusSettings
from towers.data.text import build_vocabulary


class Renumbering:
    """The vocabulary of a corpus, and the ids that spell each of its tokens.

    Args:
        tokens: every token of the corpus, in the order of the provisional ids.
        counts: the number of occurrences of each token that the vocabulary is built from.
        settings: the size of the vocabulary and its kind.

    Attributes:
        vocabulary: the vocabulary.
        unknown_words: with copies the words that it does not have; their ids follow its own.
    """

    def __init__(self, tokens: Sequence[str], counts: Mapping[str, int], settings: CorpusSettings):
        self.vocabulary = build_vocabulary(
            counts, settings.vocabulary_size, copies=settings.copy_unknown
        )
        self.unknown_words: list[str] = []
        spelled = [self._ids_of(token) for token in tokens]
        self._lengths = np.array([len(ids) for ids in spelled], np.int64)
        self._starts = np.cumsum(self._lengths) - self._lengths
        self._pieces = np.array([one for ids in spelled for one in ids], np.uint32)

    def _ids_of(self, token: str) -> tuple[int, ...]:
        if not self.vocabulary.copies or self.vocabulary.id_of(token) is not None:
            return self.vocabulary.ids(token)
        self.unknown_words.append(token)
        return (len(self.vocabulary) + len(self.unknown_words) - 1,)

    def lengths(self, words: np.ndarray, bounds: np.ndarray) -> np.ndarray:
        """Returns the number of ids of each turn, with a separator unless it is empty.

        Args:
            words: uint32, the provisional ids of some turns.
            bounds: int64 [turns + 1], where each turn begins in them, and the end.
        """
        ends = np.concatenate([[0], np.cumsum(self._lengths[words])])
        lengths = np.diff(ends[bounds])
        return lengths + (lengths > 0)

    def ids(self, words: np.ndarray, bounds: np.ndarray, separator: int) -> np.ndarray:
        """Returns the ids of the turns, a separator after each that is not empty."""
        lengths = self._lengths[words]
        ends = np.cumsum(lengths)
        within = np.arange(lengths.sum()) - np.repeat(ends - lengths, lengths)
        ids = self._pieces[np.repeat(self._starts[words], lengths) + within]
        turn_ends = np.concatenate([[0], ends])[bounds]
        places = turn_ends[1:][np.diff(turn_ends) > 0]
        return np.insert(ids, places, separator)

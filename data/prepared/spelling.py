"""From tokens to the ids that spell them, many texts at a time."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


class Spelling:
    """The ids of each token of a table.

    Args:
        spelled: of each token, its ids.
    """

    def __init__(self, spelled: Sequence[Sequence[int]]):
        self._lengths = np.array([len(ids) for ids in spelled], np.int64)
        self._starts = np.cumsum(self._lengths) - self._lengths
        self._ids = np.array([one for ids in spelled for one in ids], np.uint32)

    def ids(
        self, places: np.ndarray, num_tokens: np.ndarray, end: int, *, end_all: bool = False
    ) -> tuple[np.ndarray, np.ndarray]:
        """Returns the ids of some texts, uint32, and how many each text has, int64.

        Args:
            places: unsigned integers, the tokens of all texts one after the other, by their place
                in the table.
            num_tokens: of each text.
            end: the id that follows each text which is not empty.
            end_all: whether it follows an empty text, too.
        """
        lengths = self._lengths[places]
        ends = np.cumsum(lengths)
        within = np.arange(lengths.sum()) - np.repeat(ends - lengths, lengths)
        ids = self._ids[np.repeat(self._starts[places], lengths) + within]
        text_ends = np.concatenate([[0], ends])[np.cumsum(num_tokens, dtype=np.int64)]
        num_ids = np.diff(text_ends, prepend=0)
        ended = (num_ids > 0) | end_all
        return np.insert(ids, text_ends[ended], end), num_ids + ended

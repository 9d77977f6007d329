"""A prepared text: the ids of its parts."""

from __future__ import annotations

import functools
from pathlib import Path

import numpy as np

from towers.data.prepared.corpus import Corpus
from towers.data.text import LineCodec

COUNTED, BLOCK = 2**20, 2**14  # Tokens, for the shares of words; they are read in blocks.


class TextCorpus(Corpus[LineCodec]):
    """A prepared text.

    Args:
        folder: as in `Corpus`, with its other attributes.

    Attributes:
        num_characters: {part: its characters without blanks, each line's end counted as one}.
    """

    codec_class = LineCodec

    def __init__(self, folder: Path):
        super().__init__(folder)
        self.num_characters: dict[str, int] = self.facts["characters"]

    def part(self, name: str) -> np.ndarray:
        """Returns the ids of a part, memory-mapped; every line ends with the id of its end.

        Raises:
            ValueError: the text has no such part.
        """
        parts = self.facts["parts"]
        if name not in parts:
            raise ValueError(f"The text has the parts {', '.join(parts)}. Received {name!r}.")
        return self.array(name)

    @functools.cached_property
    def unigram_counts(self) -> np.ndarray:
        """How often each token occurs in the training part, int64 [vocabulary].

        Of a long text a million tokens are counted, from everywhere in it.
        """
        ids = self.part("train")
        if len(ids) > COUNTED:
            starts = np.linspace(0, len(ids) - BLOCK, COUNTED // BLOCK, dtype=np.int64)
            ids = np.concatenate([ids[start : start + BLOCK] for start in starts])
        return np.bincount(ids, minlength=len(self.text))

"""Writing the ids of a text: appended to a file for each part, with a journal to go on from."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from towers.data.prepared.chunks import TokenisedChunk
from towers.data.prepared.corpus import array_file, dtype_of_ids
from towers.data.prepared.filling import TokenFiles
from towers.data.prepared.spelling import Spelling
from towers.data.reading.text_files import PARTS
from towers.data.text import TextCodec


class TextIds(TokenFiles):
    """The files of ids of an unfinished corpus.

    Args:
        folder: of the corpus.
        work: folder of the journal; what an earlier process journalled in it is kept.
        codec: of the text.

    Attributes:
        codec: of the text.
        dtype: of the ids.
    """

    def __init__(self, folder: Path, work: Path, codec: TextCodec):
        paths = {part: array_file(folder, part) for part in PARTS}
        zeros = dict.fromkeys(PARTS, 0)
        numbers = {"chunks": 0, "tokens": zeros, "characters": {**zeros}, "unknown": 0}
        super().__init__(work, paths, numbers)
        self.codec = codec
        self.dtype = dtype_of_ids(len(codec.vocabulary))

    @property
    def content(self) -> str:
        """The number of tokens."""
        return f"{self._total:,} tokens"

    @property
    def num_tokens(self) -> dict[str, int]:
        """The number of tokens of each part."""
        return self.state["tokens"]

    @property
    def num_characters(self) -> dict[str, int]:
        """The number of characters of each part, without blanks, and with one for each line."""
        return self.state["characters"]

    @property
    def _total(self) -> int:
        return sum(self.num_tokens.values())

    @property
    def unknown_share(self) -> float:
        """The share of unknown tokens."""
        return self.state["unknown"] / max(1, self._total)

    def add(self, chunk: TokenisedChunk, marks: np.ndarray) -> None:
        """Writes the ids of the next lines; the mark of a line is the number of its part."""
        vocabulary = self.codec.vocabulary
        spelling = Spelling(list(map(self.codec.token_ids, chunk.table)))
        as_written = self.codec.settings.as_written
        ids, lengths = spelling.ids(chunk.places, chunk.lengths, vocabulary.end, end_all=as_written)
        part_of_ids = np.repeat(marks, lengths)
        characters = chunk.characters + (lengths > 0)
        self.state["unknown"] += int(np.count_nonzero(ids == vocabulary.unknown))
        for number, part in enumerate(PARTS):
            own = ids[part_of_ids == number]
            self.append(part, own.astype(self.dtype).data)
            self.num_tokens[part] += len(own)
            self.num_characters[part] += int(characters[marks == number].sum())

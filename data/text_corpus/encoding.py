"""Writing the ids of a text: appended to a file for each part, with a journal to go on from."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np

from towers.data.preparing.journal import JournalledFiles
from towers.data.preparing.tokenising import TokenisedChunk
from towers.data.text import TextCodec
from towers.data.text_corpus.text_corpus import PARTS, ids_file
from towers.ground.special_ids import END, UNKNOWN

_CACHE_SIZE = 1 << 18  # Number of tokens whose ids are cached, some 50 MB.


@dataclasses.dataclass
class Totals:
    """What is on the disk for certain.

    Attributes:
        chunks: number of chunks.
        tokens, characters: {part: number of them}.
        unknown: number of unknown tokens, of all parts.
    """

    chunks: int = 0
    tokens: dict[str, int] = dataclasses.field(default_factory=lambda: dict.fromkeys(PARTS, 0))
    characters: dict[str, int] = dataclasses.field(default_factory=lambda: dict.fromkeys(PARTS, 0))
    unknown: int = 0


class Encoding:
    """The files of ids of an unfinished cache; used as a context.

    Args:
        folder: of the cache.
        work: folder of the journal; what an earlier process journalled in it is kept.
        codec: of the text.

    Attributes:
        codec: of the text.
        totals: of what was written.
        dtype: of the ids.
    """

    def __init__(self, folder: Path, work: Path, codec: TextCodec):
        self.codec = codec
        self.dtype = np.dtype(np.uint16 if len(codec.vocabulary) <= 1 << 16 else np.uint32)
        self._files = JournalledFiles(work, {part: ids_file(folder, part) for part in PARTS})
        self.totals = Totals(**self._files.state)
        self._known: dict[str, tuple[int, ...]] = {}

    def __enter__(self) -> Encoding:
        return self

    def __exit__(self, *_: object) -> None:
        self._files.close()

    @property
    def num_chunks(self) -> int:
        """The number of chunks that are written."""
        return self.totals.chunks

    @property
    def num_tokens(self) -> int:
        """The number of tokens that are written, of all parts."""
        return sum(self.totals.tokens.values())

    @property
    def unknown_share(self) -> float:
        """The share of unknown tokens."""
        return self.totals.unknown / max(1, self.num_tokens)

    def add(self, chunk: TokenisedChunk, parts: np.ndarray) -> None:
        """Writes the ids of the lines of the next chunk.

        Args:
            chunk: their tokens.
            parts: uint8, the number of each line's part in `PARTS`.
        """
        ids, lengths = self._ids_of(chunk)
        part_of_ids = np.repeat(parts, lengths)
        characters = chunk.characters + (lengths > 0)
        self.totals.unknown += int(np.count_nonzero(ids == UNKNOWN))
        for number, part in enumerate(PARTS):
            own = ids[part_of_ids == number]
            self._files.append(part, own.astype(self.dtype).data)
            self.totals.tokens[part] += len(own)
            self.totals.characters[part] += int(characters[parts == number].sum())
        self.totals.chunks += 1
        if self._files.is_due:
            self.save()

    def save(self) -> None:
        """Makes sure that all is on the disk, then journals it."""
        self._files.save(dataclasses.asdict(self.totals))

    def _ids_of(self, chunk: TokenisedChunk) -> tuple[np.ndarray, np.ndarray]:
        """Returns the ids of all lines, END after each that is not empty, and the line lengths."""
        spelled = [self._known.get(token) or self._look_up(token) for token in chunk.table]
        lengths_of = np.array([len(ids) for ids in spelled], np.int64)
        pieces = np.array([one for ids in spelled for one in ids], np.int64)
        places = chunk.places.astype(np.int64)
        lengths = lengths_of[places]
        ends = np.cumsum(lengths)
        within = np.arange(lengths.sum()) - np.repeat(ends - lengths, lengths)
        ids = pieces[np.repeat((np.cumsum(lengths_of) - lengths_of)[places], lengths) + within]
        bounds = np.concatenate([[0], ends])[np.cumsum([0, *chunk.lengths.tolist()])]
        of_lines = np.diff(bounds)
        return np.insert(ids, bounds[1:][of_lines > 0], END), of_lines + (of_lines > 0)

    def _look_up(self, token: str) -> tuple[int, ...]:
        if len(self._known) >= _CACHE_SIZE:
            self._known.clear()
        self._known[token] = self.codec.vocabulary.ids(token)
        return self._known[token]

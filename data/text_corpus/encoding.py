"""Writing the ids of a text: appended to a file for each part, with a journal to go on from."""

from __future__ import annotations

import dataclasses
import json
import os
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import numpy as np

from towers.data.corpus.processes import tokenise
from towers.data.corpus.tokenising import TokenisedChunk
from towers.data.text import END, UNKNOWN, TextCodec
from towers.data.text.durable import write_file
from towers.data.text_corpus.passages import Chunk
from towers.data.text_corpus.text_corpus import PARTS, ids_file

JOURNAL = "journal.json"
SECONDS_BETWEEN_SAVES = 10.0  # A killed process loses at most this much work.
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
        folder: of the cache; what an earlier process journalled in it is kept.
        codec: of the text.

    Attributes:
        codec: of the text.
        totals: of what was written.
        dtype: of the ids.
    """

    def __init__(self, folder: Path, codec: TextCodec):
        self.codec = codec
        self.dtype = np.dtype(np.uint16 if len(codec.vocabulary) <= 1 << 16 else np.uint32)
        self._folder = folder
        self.totals = self._read_journal()
        self._files = [self._open(part) for part in PARTS]
        self._saved = time.monotonic()
        self._known: dict[str, tuple[int, ...]] = {}

    def __enter__(self) -> Encoding:
        return self

    def __exit__(self, *_: object) -> None:
        for file in self._files:
            file.close()

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

    def write(self, chunks: Iterator[Chunk], processes: int) -> None:
        """Writes the ids of all chunks, those that the journal has already left out."""
        for _ in range(self.totals.chunks):
            next(chunks, None)
        waiting: deque[list[int]] = deque()  # The parts of the lines that processes have.

        def lines() -> Iterator[list[str]]:
            for chunk in chunks:
                waiting.append(chunk.parts)
                yield chunk.lines

        for chunk in tokenise(lines(), self.codec.settings, processes):
            self._append(chunk, np.array(waiting.popleft(), np.int64))
            if time.monotonic() - self._saved >= SECONDS_BETWEEN_SAVES:
                self.save()
        self.save()

    def save(self) -> None:
        """Makes sure that all is on the disk, then journals it."""
        for file in self._files:
            file.flush()
            os.fsync(file.fileno())
        content = json.dumps(dataclasses.asdict(self.totals)) + "\n"
        write_file(self._folder / JOURNAL, content.encode())
        self._saved = time.monotonic()

    def remove_journal(self) -> None:
        """Removes the journal of a cache that is complete."""
        (self._folder / JOURNAL).unlink()

    def _append(self, chunk: TokenisedChunk, parts: np.ndarray) -> None:
        ids, lengths = self._ids_of(chunk)
        part_of_ids = np.repeat(parts, lengths)
        characters = np.array(chunk.characters) + (lengths > 0)
        self.totals.unknown += int(np.count_nonzero(ids == UNKNOWN))
        for number, part in enumerate(PARTS):
            own = ids[part_of_ids == number]
            self._files[number].write(own.astype(self.dtype).data)  # `tofile` hides why it fails.
            self.totals.tokens[part] += len(own)
            self.totals.characters[part] += int(characters[parts == number].sum())
        self.totals.chunks += 1

    def _ids_of(self, chunk: TokenisedChunk) -> tuple[np.ndarray, np.ndarray]:
        """Returns the ids of all lines, END after each that is not empty, and the line lengths."""
        spelled = [self._known.get(token) or self._look_up(token) for token in chunk.table]
        lengths_of = np.array([len(ids) for ids in spelled], np.int64)
        pieces = np.array([one for ids in spelled for one in ids], np.int64)
        places = np.array(chunk.places, np.int64)
        lengths = lengths_of[places]
        ends = np.cumsum(lengths)
        within = np.arange(lengths.sum()) - np.repeat(ends - lengths, lengths)
        ids = pieces[np.repeat((np.cumsum(lengths_of) - lengths_of)[places], lengths) + within]
        bounds = np.concatenate([[0], ends])[np.cumsum([0, *chunk.lengths])]
        of_lines = np.diff(bounds)
        return np.insert(ids, bounds[1:][of_lines > 0], END), of_lines + (of_lines > 0)

    def _look_up(self, token: str) -> tuple[int, ...]:
        if len(self._known) >= _CACHE_SIZE:
            self._known.clear()
        self._known[token] = self.codec.vocabulary.ids(token)
        return self._known[token]

    def _read_journal(self) -> Totals:
        path = self._folder / JOURNAL
        return Totals(**json.loads(path.read_text())) if path.exists() else Totals()

    def _open(self, part: str) -> BinaryIO:
        """Returns the file of a part, cut behind what the journal has."""
        path = ids_file(self._folder, part)
        path.touch()
        file = path.open("r+b")
        file.truncate(self.totals.tokens[part] * self.dtype.itemsize)
        file.seek(0, os.SEEK_END)
        return file

"""Chunks of texts with a mark for each, tokenised one after another, as far as they are not yet."""

from __future__ import annotations

import collections
from collections.abc import Iterable, Iterator
from typing import NamedTuple, Protocol

import numpy as np

from towers.data.preparing.processes import tokenise
from towers.data.preparing.progress import Progress
from towers.data.preparing.tokenising import TokenisedChunk
from towers.data.text import TextSettings

# Large enough that sending a chunk to a process costs little, small enough to hold several.
CHUNK_TEXTS, CHUNK_CHARACTERS = 2000, 200_000


class Chunk(NamedTuple):
    """Some texts that are tokenised together.

    Attributes:
        texts: lines or turns.
        marks: a small number for each, which says what its reader wants to know later.
    """

    texts: list[str]
    marks: list[int]


class Tokens(Protocol):
    """What takes the tokens of chunks, and keeps them whatever happens."""

    @property
    def num_chunks(self) -> int:
        """The number of chunks whose tokens are kept already."""

    def add(self, chunk: TokenisedChunk, marks: np.ndarray) -> None:
        """Adds the tokens of the next chunk.

        Args:
            chunk: the tokens.
            marks: uint8, of its texts.
        """

    def save(self) -> None:
        """Makes sure that all that was added is kept."""


def add_tokens(
    chunks: Iterator[Chunk],
    tokens: Tokens,
    settings: TextSettings,
    processes: int,
    progress: Progress,
) -> None:
    """Tokenises the chunks, in order, but those whose tokens are kept already.

    Args:
        chunks: all of them, the same ones in every call.
        tokens: takes their tokens.
        settings: how texts are tokenised.
        processes: how many processes tokenise.
        progress: of the reader of the chunks.
    """
    for _ in range(tokens.num_chunks):
        next(chunks, None)
    progress.restart()
    marks: collections.deque[list[int]] = collections.deque()  # Of the chunks that processes have.

    def texts() -> Iterator[list[str]]:
        for chunk in chunks:
            marks.append(chunk.marks)
            yield chunk.texts

    for tokenised in tokenise(texts(), settings, processes):
        tokens.add(tokenised, np.array(marks.popleft(), np.uint8))
    tokens.save()


def in_chunks(runs: Iterable[Chunk]) -> Iterator[Chunk]:
    """Yields runs of texts in chunks, each of which ends with the run that makes it full."""
    chunk, num_characters = Chunk([], []), 0
    for run in runs:
        chunk.texts.extend(run.texts)
        chunk.marks.extend(run.marks)
        num_characters += sum(map(len, run.texts))
        if len(chunk.texts) >= CHUNK_TEXTS or num_characters >= CHUNK_CHARACTERS:
            yield chunk
            chunk, num_characters = Chunk([], []), 0
    if chunk.texts:
        yield chunk

"""Filling journalled files with tokens, from wherever a killed process left them."""

from __future__ import annotations

import abc
import collections
from collections.abc import Callable, Iterator

import numpy as np

from towers.data.prepared.chunks import Chunk, TokenisedChunk
from towers.data.prepared.journal import JournalledFiles
from towers.data.prepared.letters import Letters
from towers.data.prepared.processes import tokenise
from towers.data.prepared.progress import Progress
from towers.data.text import TextSettings


class TokenFiles(JournalledFiles, abc.ABC):
    """Files that take the tokens of one chunk after another; `state` counts the `chunks`."""

    @property
    @abc.abstractmethod
    def content(self) -> str:
        """What the files hold, in words."""

    @abc.abstractmethod
    def add(self, chunk: TokenisedChunk, marks: np.ndarray) -> None:
        """Writes the tokens of the next chunk.

        Args:
            chunk: the tokens.
            marks: uint8, of its texts.
        """


def fill(
    files: TokenFiles,
    chunks: Iterator[Chunk],
    settings: TextSettings,
    processes: int,
    progress: Progress,
    write: Callable[[str], None],
) -> list[str]:
    """Tokenises the chunks, in order, but those whose tokens are in the files already.

    Args:
        files: for the tokens.
        chunks: all of them, the same ones in every call.
        settings: how texts are tokenised.
        processes: how many processes tokenise.
        progress: of the reader of the chunks.
        write: receives a line if an earlier process has left something.

    Returns:
        A line if the texts seem to be of another language, or none.
    """
    if files.state["chunks"]:
        write(f"goes on after {files.content} that an earlier process prepared")
    letters = Letters()
    chunks = letters.of(chunks)
    for _ in range(files.state["chunks"]):
        next(chunks, None)
    progress.restart()
    marks: collections.deque[list[int]] = collections.deque()  # Of the chunks that processes have.

    def texts() -> Iterator[list[str]]:
        for chunk in chunks:
            marks.append(chunk.marks)
            yield chunk.texts

    for tokenised in tokenise(texts(), settings, processes):
        files.add(tokenised, np.array(marks.popleft(), np.uint8))
        files.state["chunks"] += 1
        if files.is_due:
            files.save()
    files.save()
    misfit = letters.misfit(settings.language)
    return [misfit] if misfit else []

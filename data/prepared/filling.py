"""Filling journalled files with tokens, from wherever a killed process left them."""

from __future__ import annotations

import abc
import collections
import re
from collections.abc import Callable, Iterable, Iterator

import numpy as np

from towers.data.prepared.chunks import Chunk, TokenisedChunk
from towers.data.prepared.journal import JournalledFiles
from towers.data.prepared.processes import tokenise
from towers.data.text import TextSettings
from towers.data.text.normalisation import LANGUAGES
from towers.ground.progress import Progress

_CHINESE = re.compile("[\u3400-\u4dbf\u4e00-\u9fff\U00020000-\U0003ffff]")
_LATIN = re.compile("[A-Za-z\u00c0-\u024f]")
_LEAST_LETTERS = 100
_LEAST_FRACTION = 0.3
_MOST_TEXTS = 20_000


class TokenFiles(JournalledFiles, abc.ABC):
    """Files that take the tokens of one chunk after another; `state` counts the `chunks`."""

    @property
    @abc.abstractmethod
    def content(self) -> str:
        """What the files hold, in words."""

    @abc.abstractmethod
    def add(self, chunk: TokenisedChunk, marks: np.ndarray) -> None:
        """Writes the tokens of the next chunk, whose texts have marks, uint8."""


def fill(
    files: TokenFiles,
    chunks: Iterator[Chunk],
    settings: TextSettings,
    processes: int | None,
    progress: Progress,
    write: Callable[[str], None],
) -> list[str]:
    """Tokenises the chunks, in order, but those whose tokens are in the files already.

    The chunks are the same ones in every call. Returns a line if the texts seem to be of another
    language, or none.
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


class Letters:
    """Counts of the letters of the first texts, by script."""

    def __init__(self) -> None:
        self._num_texts = self._num_chinese = self._num_latin = self._num_all = 0

    def of(self, chunks: Iterable[Chunk]) -> Iterator[Chunk]:
        """Yields chunks of texts, and counts the letters of the first texts."""
        for chunk in chunks:
            for text in chunk.texts[: _MOST_TEXTS - self._num_texts]:
                self._add(text)
            yield chunk

    def _add(self, text: str) -> None:
        self._num_texts += 1
        self._num_chinese += len(_CHINESE.findall(text))
        self._num_latin += len(_LATIN.findall(text))
        self._num_all += sum(map(str.isalpha, text))

    def misfit(self, language: str) -> str | None:
        """Returns a line if few of the letters are those of the language, otherwise None.

        A few letters tell nothing.
        """
        counts = {"zh": self._num_chinese, "en": self._num_latin}
        if self._num_all < _LEAST_LETTERS or counts[language] >= _LEAST_FRACTION * self._num_all:
            return None
        fractions = {one: counts[one] / self._num_all for one in LANGUAGES}
        likely = max(fractions, key=lambda one: fractions[one])
        advice = (
            f"give --language {likely}"
            if fractions[likely] >= _LEAST_FRACTION
            else "the file may have another encoding (--encoding); letters of other scripts are "
            "kept (--set tokenizer=characters)"
        )
        return (
            f"warning: the language is {language}, but {fractions['zh']:.0%} of the letters are "
            f"Chinese and {fractions['en']:.0%} Latin: {advice}"
        )

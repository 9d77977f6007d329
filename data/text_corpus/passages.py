"""Passages: runs of lines, each of which belongs to one part of a text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from towers.data.preparing.chunks import Chunk
from towers.data.text_corpus.reading import Reader
from towers.data.text_corpus.text_files import PARTS, TextFile

PASSAGE_CHARACTERS = 500
TRAIN, VALID, TEST = range(len(PARTS))


def passages(files: Sequence[TextFile], reader: Reader, share: float) -> Iterator[Chunk]:
    """Yields the passages of a text in order, each of one part, whose number marks its lines.

    Where the names of the files do not tell the parts, every n-th passage is valid and every n-th
    is test, with n = 1 / share: the same ones always, from everywhere in the text.
    """
    period = max(4, round(1 / share))
    number = 0
    for file in files:
        for lines in _in_passages(reader.lines(file)):
            own = PARTS.index(file.part) if file.part else _dealt(number, period)
            yield Chunk(lines, [own] * len(lines))
            number += 1


def _dealt(number: int, period: int) -> int:
    """Returns the part of a passage by its number."""
    return {period // 2 - 1: VALID, period - 1: TEST}.get(number % period, TRAIN)


def _in_passages(lines: Iterator[str]) -> Iterator[list[str]]:
    passage: list[str] = []
    num_characters = 0
    for line in lines:
        passage.append(line)
        num_characters += len(line)
        if num_characters >= PASSAGE_CHARACTERS:
            yield passage
            passage, num_characters = [], 0
    if passage:
        yield passage

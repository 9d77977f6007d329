"""Passages: runs of lines, each of which belongs to one part of a text."""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Iterable, Iterator, Sequence

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
        for lines in _in_passages(reader.blocks(file)):
            own = PARTS.index(file.part) if file.part else _dealt(number, period)
            yield Chunk(lines, [own] * len(lines))
            number += 1


def _dealt(number: int, period: int) -> int:
    """Returns the part of a passage by its number."""
    return {period // 2 - 1: VALID, period - 1: TEST}.get(number % period, TRAIN)


def _in_passages(blocks: Iterable[list[str]]) -> Iterator[list[str]]:
    """Yields the lines of some blocks in passages, each of which ends with the line that fills it.

    A passage is a slice between two places that a search finds, since a loop over lines would take
    most of the time of reading.
    """
    rest: list[str] = []
    for block in blocks:
        lines = rest + block
        ends = list(itertools.accumulate(map(len, lines)))
        start, done = 0, 0
        while (last := bisect.bisect_left(ends, done + PASSAGE_CHARACTERS, start)) < len(ends):
            yield lines[start : last + 1]
            start, done = last + 1, ends[last]
        rest = lines[start:]
    if rest:
        yield rest

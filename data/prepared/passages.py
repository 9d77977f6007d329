"""Passages: runs of lines, each of which belongs to one part of a text."""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence

from towers.data.folders import PARTS
from towers.data.prepared.chunks import Chunk
from towers.data.reading.text_files import TextFile
from towers.data.reading.texts import DOCUMENT_END, PASSAGE_CHARACTERS, Piece, Reader

TRAIN, VALIDATION, TEST = range(len(PARTS))
# Of a mark: the line is the end of a document, or the next text goes on with it. The rest is the
# number of the part.
ENDS, GOES_ON = 1 << 2, 1 << 3


def passages(files: Sequence[TextFile], reader: Reader, fraction: float) -> Iterator[Chunk]:
    """Yields the passages of a text in order, each of one part, whose number marks its lines.

    Where the names of the files do not tell the parts, every n-th passage is for validation and
    every n-th for the test, with n = 1 / fraction: the same ones always, from everywhere in the
    text. A passage of a long line counts for several. If some files are test by their names, the
    others give none.
    """
    deal = Deal(max(4, round(1 / fraction)), has_test=any(file.part == "test" for file in files))
    for file in files:
        open_parts: set[int] = set()  # Those with lines of the document that is read.
        for lines in _in_passages(reader.blocks(file)):
            own = PARTS.index(file.part) if file.part else deal.part_of(lines)
            marks = [own] * len(lines)
            if reader.as_written:
                marks = [own | GOES_ON if isinstance(line, Piece) else own for line in lines]
            if DOCUMENT_END in lines:
                pairs = zip(lines, marks, strict=True)
                marks = [own | ENDS if line == DOCUMENT_END else mark for line, mark in pairs]
                for part in open_parts - {own}:
                    yield Chunk([DOCUMENT_END], [part | ENDS])
                open_parts.clear()
            yield Chunk(lines, marks)
            if lines[-1] != DOCUMENT_END:
                open_parts.add(own)


def passages_of_parts(texts: Mapping[str, str]) -> Iterator[Chunk]:
    """Yields the lines of texts in memory, {part: its lines}, also blank ones."""
    for part, text in texts.items():
        for lines in _in_passages([text.removesuffix("\n").split("\n")]):
            yield Chunk(lines, [PARTS.index(part)] * len(lines))


class Deal:
    """Deals passages out to the parts: of so many one is for validation, one for test."""

    def __init__(self, period: int, *, has_test: bool):
        self._period = period
        self._done = 0
        # The number of the passage that is next for the part.
        self._due = {VALIDATION: period // 2 - 1} | ({} if has_test else {TEST: period - 1})

    def part_of(self, lines: Sequence[str]) -> int:
        """Returns the part of the next passage."""
        size = max(1, sum(map(len, lines)) // PASSAGE_CHARACTERS)
        self._done += size
        for part, due in self._due.items():
            if due < self._done:
                self._due[part] += self._period * size
                return part
        return TRAIN


def _in_passages(blocks: Iterable[list[str]]) -> Iterator[list[str]]:
    """Yields the lines of some blocks in passages, each of which ends with the line that fills it.

    Where little is left of a record then, it goes on to its end. A passage is a slice between two
    indices that a search finds, since a loop over lines would take most of the time of reading.
    """
    rest: list[str] = []
    for block in blocks:
        lines = rest + block
        ends = list(itertools.accumulate(map(len, lines)))
        start, done = 0, 0
        while (last := bisect.bisect_left(ends, done + PASSAGE_CHARACTERS, start)) < len(ends):
            if lines[-1] == DOCUMENT_END and ends[-1] - ends[last] <= PASSAGE_CHARACTERS:
                last = len(lines) - 1
            yield lines[start : last + 1]
            start, done = last + 1, ends[last]
        rest = lines[start:]
    if rest:
        yield rest

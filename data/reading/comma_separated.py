"""CSV whose first line names the columns, separated by commas, semicolons or tabs."""

from __future__ import annotations

import collections
import csv
from collections.abc import Callable, Iterable, Iterator

from towers.data.reading.dialogue_file import MAX_LINE_CHARACTERS, Dialogue, DialogueFile, Line
from towers.data.reading.records import COLUMNS, columns_of, find_columns

DELIMITERS = ",;\t"


def fits(file: DialogueFile) -> bool:
    """Returns whether the first line names columns of a question and an answer."""
    first = next(iter(file.sample()), "")
    return any(_named(first, delimiter, file) for delimiter in DELIMITERS)


def _named(line: str, delimiter: str, file: DialogueFile) -> tuple[str, ...] | None:
    names = next(_Rows([Line(1, line, False)], delimiter), [])
    return find_columns(names, file.columns) if len(names) > 1 else None


def read(file: DialogueFile) -> Iterator[Dialogue]:
    """Yields a dialogue for each row; a field in quotes may hold line ends.

    A quote that opens a field and is not closed before a delimiter or a line end is a letter as any
    other, so that it does not take the rows below it along.

    Raises:
        ValueError: the first line does not name the columns of a question and an answer.
    """
    first = next(iter(file.sample()), "")
    delimiters = [one for one in DELIMITERS if _named(first, one, file)]
    if not delimiters:
        wanted = ",".join(file.columns) or " or ".join(",".join(names) for names in COLUMNS[:5])
        raise ValueError(
            f"{file.path}:1: expected the names of columns such as {wanted}, found {first[:60]!r}. "
            "Name the columns of question and answer with --set columns=NAME,NAME."
        )
    rows = _Rows(file.usable_lines(), delimiters[0])
    header = next(rows, [])
    names = find_columns(header, file.columns) or ()
    for row in rows:
        record = dict(zip(header, row, strict=False))
        turns = columns_of(record, names) if names and len(row) <= len(header) else None
        flaw = "rows of other than the columns of the first line"
        yield from file.dialogue(turns, rows.end, flaw)


class _Rows:
    """An iterator over the rows of CSV that are not empty.

    Where the quotes of a row do not close, its first line is a row by itself and the lines after it
    are read again. One that csv refuses even so is a row of too many columns.

    Args:
        lines: of the file.
        delimiter: between fields.

    Attributes:
        end: the line in which the last row ends.
    """

    def __init__(self, lines: Iterable[Line], delimiter: str):
        csv.field_size_limit(max(csv.field_size_limit(), MAX_LINE_CHARACTERS * 2))
        self.end = Line(1, "", False)
        self._delimiter = delimiter
        self._again: collections.deque[Line] = collections.deque()
        self._unread = iter(lines)
        self._row: list[Line] = []  # The lines of the present row.
        self._reader = csv.reader(_Fed(self._next_text), delimiter=delimiter, strict=True)

    def __iter__(self) -> _Rows:
        return self

    def __next__(self) -> list[str]:
        while True:
            self._row = []
            try:
                row = next(self._reader)
                self.end = self._row[-1]
            except csv.Error:
                self.end, *after = self._row
                self._again.extendleft(reversed(after))
                row = self._alone(self.end.text)
            if row:
                return row

    def _next_text(self) -> str:
        line = self._again.popleft() if self._again else next(self._unread)
        self._row.append(line)
        return _without_nul(line.text) + "\n"

    def _alone(self, text: str) -> list[str]:
        """Returns the row of one line whose quotes are not as csv wants them."""
        lines, delimiter = [_without_nul(text)], self._delimiter
        try:
            if text.count('"') % 2:
                return next(csv.reader(lines, delimiter=delimiter, quoting=csv.QUOTE_NONE))
            return next(csv.reader(lines, delimiter=delimiter))
        except csv.Error:
            return ["\0"] * 1000


class _Fed:
    """An iterator that goes on after its end if there is more by then, unlike a generator."""

    def __init__(self, next_text: Callable[[], str]):
        self._next_text = next_text

    def __iter__(self) -> _Fed:
        return self

    def __next__(self) -> str:
        return self._next_text()


def _without_nul(text: str) -> str:
    return text.replace("\0", "\ufffd")

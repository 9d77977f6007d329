"""CSV: its first line names the columns, or each row is a question and its answer."""

from __future__ import annotations

import collections
import csv
import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from towers.data.reading.chats import dialogues_of
from towers.data.reading.dialogue_file import MAX_LINE_CHARACTERS, Dialogue, DialogueFile, Line
from towers.data.reading.json_files import unpacked
from towers.data.reading.message_records import message_of
from towers.data.reading.records import COLUMN_NAMES, COLUMNS, LIST_KEYS, find_columns
from towers.data.reading.tsv import other_columns

_MOST_HEADERS = 2  # A line above the names may group them: it has blanks.
DELIMITERS = ",;\t"
PAIR = COLUMNS[0]
_ESCAPED = '\\"'
_SEPARATOR = re.compile(r"sep=(.)\s*", re.IGNORECASE)  # What spreadsheets write before all rows.


class _Form(NamedTuple):
    """How rows are to be read: what divides fields, their names, and the lines before the rows."""

    delimiter: str
    names: tuple[str, ...]
    num_before: int


def fits(file: DialogueFile) -> bool:
    """Returns whether the first line names columns of dialogues, or each row has two fields."""
    return _form(file) is not None


def names_columns(file: DialogueFile) -> bool:
    """Returns whether the first line names columns of dialogues or of messages."""
    return _named_form(file, *_rows_of(file)) is not None


def _form(file: DialogueFile) -> _Form | None:
    found = _rows_of(file)
    return _named_form(file, *found) or _form_of_pairs(file, *found)


def _rows_of(file: DialogueFile) -> tuple[list[str], str, int]:
    """Returns the first rows, the delimiters that they may have, and the number of lines before."""
    sample = file.sample()
    match = _SEPARATOR.fullmatch(sample[0]) if sample else None
    return (sample[1:], match[1], 1) if match else (sample, DELIMITERS, 0)


def _named_form(file: DialogueFile, rows: list[str], delimiters: str, before: int) -> _Form | None:
    for delimiter, place in itertools.product(delimiters, range(min(_MOST_HEADERS, len(rows)))):
        names = _fields(rows[place], delimiter)
        if place and all(_fields(rows[0], delimiter)):
            continue
        is_row = message_of(dict.fromkeys(names, "1"), file.layout) is not None
        first = _record(names, _fields(rows[place + 1], delimiter)) if rows[place + 1 :] else {}
        is_known = is_row or any(isinstance(first.get(name), list) for name in LIST_KEYS)
        if len(names) > 1 and (is_known or find_columns(names, file.layout.columns)):
            return _Form(delimiter, tuple(names), before + place + 1)
    return None


def _form_of_pairs(
    file: DialogueFile, rows: list[str], delimiters: str, before: int
) -> _Form | None:
    if file.layout.columns or not (before or ".csv" in file.path.suffixes):
        return None
    if any(
        name.strip().lower() in COLUMN_NAMES for name in re.split("[,;]", rows[0] if rows else "")
    ):
        return None
    for delimiter in delimiters.replace("\t", ""):
        pairs = [_fields(row, delimiter) for row in rows]
        is_table = len(rows) > 1 and all(len(pair) == len(PAIR) for pair in pairs)
        if is_table and not other_columns(pairs):
            return _Form(delimiter, PAIR, before)
    return None


def _fields(line: str, delimiter: str) -> list[str]:
    return next(_Rows([Line(1, line, False)], delimiter), None) or []


def read(file: DialogueFile) -> Iterator[Dialogue]:
    """Yields the dialogues of the rows; a field in quotes may hold line ends.

    A quote that opens a field and is not closed before a delimiter or a line end is a letter as any
    other, so that it does not take the rows below it along.

    Raises:
        ValueError: the first line does not name the columns of a question and an answer.
    """
    form = _form(file)
    if form is None:
        first = next(iter(file.sample()), "")
        wanted = ",".join(file.layout.columns) or " or ".join(map(",".join, COLUMNS[:5]))
        raise ValueError(
            f"{file.path}:1: expected the names of columns such as {wanted}, found {first[:60]!r}. "
            "Name the columns of question and answer with --set columns=NAME,NAME."
        )
    if form.names == PAIR and not form.num_before:
        file.report.note(f"{file.path}: no line names the columns; read as question, answer")
    for name in sorted({one for one in form.names if one and form.names.count(one) > 1}):
        file.report.note(f"{file.path}: of several columns named {name!r} the last one is read")
    flaw = "rows of other than the columns of the first line"
    return dialogues_of(_records(file, form), file, flaw)


def _records(file: DialogueFile, form: _Form) -> Iterator[tuple[Line, Any]]:
    lines, names = file.usable_lines(), form.names
    rows = _Rows(itertools.islice(lines, form.num_before, None), form.delimiter)
    for row in rows:
        yield rows.end, None if row is None or len(row) > len(names) else _record(names, row)


def _record(names: Sequence[str], row: Sequence[str]) -> dict[str, Any]:
    """Returns the fields of a row; a list in JSON, such as one of messages, is a list."""
    return dict(zip(names, map(unpacked, row), strict=False))


class _Rows:
    """An iterator over the rows of CSV that are not empty.

    A quote may stand behind blanks. Where the quotes of a row do not close, a backslash before a
    quote makes it a letter, as MySQL and Spark write it. If they do not close even so, its first
    line is a row by itself and the lines after it are read again. For one that csv refuses even so
    there is None.

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
        options: dict[str, Any] = {"delimiter": delimiter, "strict": True, "skipinitialspace": True}
        self._reader = csv.reader(_Fed(self._next_text), **options)
        doubled = _Fed(lambda: self._next_text().replace(_ESCAPED, '""'))
        self._escaped = csv.reader(doubled, **options)

    def __iter__(self) -> _Rows:
        return self

    def __next__(self) -> list[str] | None:
        while True:
            row = self._read(self._reader)
            if row is None and any(_ESCAPED in line.text for line in self._row):
                self._again.extendleft(reversed(self._row))
                row = self._read(self._escaped)
            if row is None:
                self.end, *after = self._row
                self._again.extendleft(reversed(after))
                row = self._alone(self.end.text)
            if row != []:
                return row

    def _read(self, reader: Iterator[list[str]]) -> list[str] | None:
        """Returns the next row, None where its quotes are not as csv wants them."""
        self._row = []
        try:
            row = next(reader)
        except csv.Error:
            return None
        self.end = self._row[-1]
        return row

    def _next_text(self) -> str:
        line = self._again.popleft() if self._again else next(self._unread)
        self._row.append(line)
        return _without_nul(line.text) + "\n"

    def _alone(self, text: str) -> list[str] | None:
        """Returns the row of one line whose quotes are not as csv wants them, if there is one."""
        lines, delimiter = [_without_nul(text)], self._delimiter
        try:
            if text.count('"') % 2:
                return next(csv.reader(lines, delimiter=delimiter, quoting=csv.QUOTE_NONE))
            return next(csv.reader(lines, delimiter=delimiter))
        except csv.Error:
            return None


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

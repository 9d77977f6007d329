"""CSV: its first line names the columns, or each row is a question and its answer."""

from __future__ import annotations

import collections
import csv
import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
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
    sample = file.sample
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
        is_known |= [name.strip() for name in names] == ["Q", "A"]  # Small letters may be a pair.
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
    _, row = next(_rows([Line(1, line, False)], delimiter), (None, None))
    return row or []


def read(file: DialogueFile) -> Iterator[Dialogue]:
    """Yields the dialogues of the rows; a field in quotes may hold line ends.

    A quote that opens a field and is not closed before a delimiter or a line end is a letter as any
    other, so that it does not take the rows below it along.

    Raises:
        ValueError: the first line does not name the columns of a question and an answer.
    """
    form = _form(file)
    if form is None:
        first = next(iter(file.sample), "")
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
    rows = _rows(itertools.islice(lines, form.num_before, None), form.delimiter)
    for end, row in rows:
        yield end, None if row is None or len(row) > len(names) else _record(names, row)


def _record(names: Sequence[str], row: Sequence[str]) -> dict[str, Any]:
    """Returns the fields of a row; a list in JSON, such as one of messages, is a list."""
    return dict(zip(names, map(unpacked, row), strict=False))


def _rows(lines: Iterable[Line], delimiter: str) -> Iterator[tuple[Line, list[str] | None]]:
    """Yields the rows of CSV that are not empty, each with the line in which it ends.

    A quote may stand behind blanks. Where the quotes of a row do not close, a backslash before a
    quote makes it a letter, as MySQL and Spark write it. If they do not close even so, its first
    line is a row by itself and the lines after it are read again. For one that csv refuses even so
    there is None.
    """
    csv.field_size_limit(max(csv.field_size_limit(), MAX_LINE_CHARACTERS * 2))
    again, unread, taken = collections.deque[Line](), iter(lines), list[Line]()

    def reader(quote: str = _ESCAPED) -> Iterator[list[str]]:
        """Returns a reader of what is left, with `quote` for a quote behind a backslash."""

        def texts() -> Iterator[str]:
            while line := again.popleft() if again else next(unread, None):
                taken.append(line)
                yield _without_nul(line.text).replace(_ESCAPED, quote) + "\n"

        return csv.reader(texts(), delimiter=delimiter, strict=True, skipinitialspace=True)

    def next_row(rows: Iterator[list[str]]) -> list[str] | None:
        taken.clear()
        try:
            return next(rows, None)
        except csv.Error:
            return None

    rows = reader()
    while True:
        row = next_row(rows)
        if not taken:
            return
        if row is None:
            if any(_ESCAPED in line.text for line in taken):
                again.extendleft(reversed(taken))
                row = next_row(reader('""'))
            if row is None:
                again.extendleft(reversed(taken[1:]))
                del taken[1:]
                row = _alone(taken[0].text, delimiter)
            rows = reader()  # The one before may have seen the end.
        if row != []:
            yield taken[-1], row


def _alone(text: str, delimiter: str) -> list[str] | None:
    """Returns the row of one line whose quotes are not as csv wants them, if there is one."""
    options: dict[str, Any] = {"quoting": csv.QUOTE_NONE} if text.count('"') % 2 else {}
    try:
        return next(csv.reader([_without_nul(text)], delimiter=delimiter, **options))
    except csv.Error:
        return None


def _without_nul(text: str) -> str:
    return text.replace("\0", "\ufffd")

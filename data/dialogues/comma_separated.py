"""CSV whose first line names the columns, separated by commas, semicolons or tabs."""

from __future__ import annotations

import csv
from collections.abc import Iterator

from towers.data.dialogues.dialogue_file import MAX_LINE_CHARACTERS, Dialogue, DialogueFile, Line
from towers.data.dialogues.records import COLUMNS, columns_of, find_columns

DELIMITERS = ",;\t"


def fits(file: DialogueFile) -> bool:
    """Returns whether the first line names columns of a question and an answer."""
    first = next(iter(file.sample()), "")
    return any(_named(first, delimiter, file) for delimiter in DELIMITERS)


def _named(line: str, delimiter: str, file: DialogueFile) -> tuple[str, ...] | None:
    names = next(iter(_rows(iter([line]), delimiter)), [])
    return find_columns(names, file.columns) if len(names) > 1 else None


def read(file: DialogueFile) -> Iterator[Dialogue]:
    """Yields a dialogue for each row; a field in quotes may hold line ends.

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
    last = [Line(1, "", False)]

    def texts() -> Iterator[str]:
        for line in file.usable_lines():
            last[0] = line
            yield line.text + "\n"

    rows = _rows(texts(), delimiters[0])
    header = next(rows)
    names = find_columns(header, file.columns) or ()
    for row in rows:
        line = last[0]  # Where the row ends.
        record = dict(zip(header, row, strict=False))
        turns = columns_of(record, names) if len(row) <= len(header) else None
        if turns:
            yield [file.turn(turn, line) for turn in turns]
        else:
            file.skip("rows of other than the columns of the first line", line)


def _rows(lines: Iterator[str], delimiter: str) -> Iterator[list[str]]:
    """Yields the rows that are not empty; one that csv refuses is a row without columns."""
    reader = csv.reader((line.replace("\0", "\ufffd") for line in lines), delimiter=delimiter)
    csv.field_size_limit(max(csv.field_size_limit(), MAX_LINE_CHARACTERS * 2))
    while True:
        try:
            row = next(reader)
        except StopIteration:
            return
        except csv.Error:
            row = ["\0"] * 1000  # As a row of too many columns it is counted as skipped.
        if row:
            yield row

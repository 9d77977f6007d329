"""Parquet with a dialogue in each row: columns of question and answer, or of messages."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from towers.data.extras import import_extra
from towers.data.reading.dialogue_file import Dialogue, DialogueFile, Line
from towers.data.reading.records import COLUMNS, LIST_KEYS, find_columns, turns_of
from towers.data.text.files import reason_of

MAGIC = b"PAR1"
ROWS = 1024  # In memory at a time.


def fits(file: DialogueFile) -> bool:
    """Returns whether the file begins as Parquet does."""
    try:
        with file.path.open("rb") as raw:
            return raw.read(len(MAGIC)) == MAGIC
    except OSError:
        return False


def read(file: DialogueFile) -> Iterator[Dialogue]:
    """Yields a dialogue for each row, a record as `turns_of` takes it.

    Raises:
        ValueError: the file is damaged, lacks the columns, or pyarrow is not installed.
    """
    parquet = import_extra("pyarrow.parquet", "parquet", f"{file.path} is a Parquet file")
    arrow = import_extra("pyarrow", "parquet", "Parquet")
    errors = (OSError, UnicodeError, arrow.ArrowException)
    file.report.num_files += 1
    number = 0
    try:
        with parquet.ParquetFile(file.path) as opened:
            columns = _columns(file, opened.schema_arrow)
            bytes_of_row = file.path.stat().st_size / max(1, opened.metadata.num_rows)
            for batch in opened.iter_batches(ROWS, columns=columns):
                file.progress(round(bytes_of_row * batch.num_rows))
                for record in batch.to_pylist():
                    number += 1
                    file.report.num_lines += 1
                    line = Line(number, "", False)
                    turns = turns_of(record, file.columns)
                    if turns:
                        yield [file.turn(turn, line) for turn in turns]
                    else:
                        file.skip("rows that are not a dialogue", line)
    except errors as error:
        raise ValueError(f"{file.path} cannot be read to its end: {reason_of(error)}.") from error


def _columns(file: DialogueFile, schema: Any) -> list[str]:
    """Returns the columns that are read; ValueError if there are none."""
    names = schema.names
    lists = [name for name in names if name in LIST_KEYS and _has_lists(schema.field(name).type)]
    lists = [] if file.columns else lists
    found = lists or list(find_columns(names, file.columns) or ())
    if not found:
        wanted = ", ".join(file.columns) or f"{' and '.join(COLUMNS[0])}, or messages"
        raise ValueError(
            f"{file.path}: expected the columns {wanted}, found {', '.join(names[:8])}. Name the "
            "columns of question and answer with --set columns=NAME,NAME."
        )
    return found


def _has_lists(kind: Any) -> bool:
    """Returns whether the values of an Arrow type are lists, of any of its kinds."""
    return hasattr(kind, "value_type") and hasattr(kind, "value_field")

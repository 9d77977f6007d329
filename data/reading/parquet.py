"""Parquet: its rows, and a dialogue in each: columns of question and answer, or of messages."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from towers.data.compression import Progress, first_bytes
from towers.data.folders import reason_of
from towers.data.reading.chats import dialogues_of
from towers.data.reading.dialogue_file import Dialogue, DialogueFile, Line
from towers.data.reading.json_files import unpacked
from towers.data.reading.message_records import message_of
from towers.data.reading.records import COLUMNS, LIST_KEYS, find_columns
from towers.ground.extras import import_extra

MAGIC = b"PAR1"
ROWS = 1024  # In memory at a time.


def fits(file: DialogueFile) -> bool:
    """Returns whether the file begins as Parquet does."""
    return first_bytes(file.path, len(MAGIC)) == MAGIC


def read(file: DialogueFile) -> Iterator[Dialogue]:
    """Yields the dialogues of the rows.

    Raises:
        ValueError: the file is damaged, lacks the columns, or pyarrow is not installed.
    """
    return dialogues_of(_rows(file), file, "rows that are not a dialogue")


def _rows(file: DialogueFile) -> Iterator[tuple[Line, Any]]:
    file.report.num_files += 1
    rows = rows_of(file.path, functools.partial(_columns, file), file.progress)
    for number, record in enumerate(rows, 1):
        file.report.num_lines += 1
        lists = {name: unpacked(record[name]) for name in LIST_KEYS if name in record}
        yield Line(number, "", False), {**record, **lists}


def rows_of(
    path: Path,
    columns_of: Callable[[Any], list[str]],
    progress: Progress = lambda _: None,
    in_memory: int = ROWS,
) -> Iterator[dict[str, Any]]:
    """Yields the rows of a file, {name: value}, some of them in memory at a time.

    Args:
        path: the file.
        columns_of: from the Arrow schema to the names of the columns that are read.
        progress: called with the number of bytes that were read since the last call.
        in_memory: how many rows are in memory at a time.

    Raises:
        ValueError: the file is damaged, or pyarrow is not installed.
    """
    parquet = import_extra("pyarrow.parquet", "parquet", f"{path} is a Parquet file")
    arrow = import_extra("pyarrow", "parquet", "Parquet")
    size, done = path.stat().st_size, 0
    try:
        with parquet.ParquetFile(path) as file:
            total = max(1, file.metadata.num_rows)
            for batch in file.iter_batches(in_memory, columns=columns_of(file.schema_arrow)):
                yield from batch.to_pylist()
                progress(size * batch.num_rows // total)
                done += size * batch.num_rows // total
    except (OSError, UnicodeError, arrow.ArrowException) as error:
        raise ValueError(f"{path} cannot be read to its end: {reason_of(error)}.") from error
    progress(size - done)


def _columns(file: DialogueFile, schema: Any) -> list[str]:
    """Returns the columns that are read; ValueError if there are none."""
    names = schema.names
    has_lists = (
        any(name in LIST_KEYS and _may_have_lists(schema.field(name).type) for name in names)
        and not file.layout.columns
    )
    blank = dict.fromkeys(names, "1")
    if not (
        has_lists or find_columns(names, file.layout.columns) or message_of(blank, file.layout)
    ):
        wanted = ", ".join(file.layout.columns) or f"{' and '.join(COLUMNS[0])}, or messages"
        raise ValueError(
            f"{file.path}: expected the columns {wanted}, found {', '.join(names[:8])}. Name the "
            "columns of question and answer with --set columns=NAME,NAME."
        )
    return list(names)


def _may_have_lists(kind: Any) -> bool:
    """Returns whether the values of an Arrow type are lists, of any of its kinds, or texts."""
    is_list = hasattr(kind, "value_type") and hasattr(kind, "value_field")
    return is_list or str(kind).endswith("string")

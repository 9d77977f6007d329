"""Tables of pictures: CSV and TSV files with the columns path and label, and maybe split."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path

from towers.data.image_files.examples import PART_NAMES, Example

TABLE_SUFFIXES = (".csv", ".tsv")
SEPARATOR = "|"
PATH_COLUMNS, LABEL_COLUMNS, PART_COLUMNS = (
    ("path", "file", "filename"),
    ("label", "labels"),
    (
        "split",
        "part",
    ),
)


def list_table(path: Path, several_labels: bool = False) -> Iterator[Example]:
    """Yields the examples of a table, whose paths are relative to its folder.

    Args:
        path: the file, in UTF-8; its first row names the columns.
        several_labels: whether the label column holds any number of labels, joined by `|`.

    Raises:
        ValueError: a row is malformed; the message names the file and the line.
    """
    delimiter = "\t" if path.suffix.lower() == ".tsv" else ","
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file, delimiter=delimiter, strict=True)
            columns = find_columns(path, next(reader, []))
            for row in reader:
                if row:
                    place = f"{path}:{reader.line_num}"
                    yield read_row(path.parent, place, row, columns, several_labels)
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not in UTF-8 ({error.reason}). Save it as UTF-8.") from error
    except csv.Error as error:
        raise ValueError(f"{path}:{reader.line_num}: {error}.") from error


def find_columns(path: Path, header: list[str]) -> tuple[int, int, int | None]:
    """Returns the numbers of the columns of the path, of the label and, or None, of the part."""
    names = [name.strip().lower() for name in header]

    def find(choices: tuple[str, ...]) -> int | None:
        return next((names.index(name) for name in choices if name in names), None)

    of_path, of_label = find(PATH_COLUMNS), find(LABEL_COLUMNS)
    if of_path is None or of_label is None:
        raise ValueError(
            f"{path}:1: the first row has to name the columns path and label (and maybe split). "
            f"Received {', '.join(header) or 'an empty row'}."
        )
    return of_path, of_label, find(PART_COLUMNS)


def read_row(
    folder: Path,
    place: str,
    row: list[str],
    columns: tuple[int, int, int | None],
    several_labels: bool,
) -> Example:
    """Returns the example of a row; ValueError names its place."""
    of_path, of_label, of_part = columns
    if len(row) <= max(of_path, of_label, of_part or 0):
        raise ValueError(f"{place}: the row has only {len(row)} columns: {row!r}.")
    name, text, part = row[of_path].strip(), row[of_label].strip(), None
    if not name or "\0" in name:
        raise ValueError(f"{place}: the path is empty or holds a zero byte.")
    if of_part is not None:
        part = PART_NAMES.get(row[of_part].strip().lower())
        if part is None:
            raise ValueError(
                f"{place}: split must be train, val or test. Received {row[of_part]!r}."
            )
    labels = tuple(dict.fromkeys(one.strip() for one in text.split(SEPARATOR) if one.strip()))
    if not several_labels and len(labels) != 1:
        raise ValueError(
            f"{place}: a row has one label. Received {text!r}. If pictures have any number of "
            "labels, joined by |, add --set multi_label=true."
        )
    return Example(name, folder / name, labels, part)

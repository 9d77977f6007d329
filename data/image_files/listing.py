"""The examples of a folder, a table or record files, one after the other, in a fixed order."""

from __future__ import annotations

import csv
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from towers.data.folders import files_below, format_suffixes, suffix_of
from towers.data.image_files.decoding import SUFFIXES
from towers.data.image_files.records import PART_NAMES, TRAIN, Example, is_record_file, list_records

LAYOUT = (
    "Expected class folders (FOLDER/CLASS/PICTURE.jpg), folders train/, val/ or test/ of class "
    "folders, a CSV or TSV file with the columns path and label, or TFRecord or "
    "ArrayRecord files"
)
TABLE_SUFFIXES = (".csv", ".tsv")
SEPARATOR = "|"
PATH_COLUMNS, LABEL_COLUMNS = ("path", "file", "filename"), ("label", "labels")
PART_COLUMNS = ("split", "part")


def list_examples(
    path: str | os.PathLike[str],
    *,
    several_labels: bool = False,
    others: Counter[str] | None = None,
) -> Iterator[Example]:
    """Yields the examples of a folder or of a file.

    Args:
        path: a folder of class folders, of `train/`, `val/` or `test/` folders of those, of one
            table or of record files; or a table or a record file.
        several_labels: whether a table has any number of labels in a row, joined by `|`.
        others: counts the files of class folders that are no pictures, by suffix.

    Raises:
        FileNotFoundError: there is no such file or folder.
        ValueError: it has none of these forms.
    """
    path = Path(path)
    others = Counter() if others is None else others
    if not path.exists():
        raise FileNotFoundError(f"{path} does not exist. {LAYOUT}.")
    if path.is_dir():
        yield from list_folder(path, several_labels, others)
    elif path.suffix.lower() in TABLE_SUFFIXES:
        yield from list_table(path, several_labels)
    elif is_record_file(path):
        yield from list_records([path])
    else:
        raise ValueError(f"{path} is no image set. {LAYOUT}.")


def list_folder(folder: Path, several_labels: bool, others: Counter[str]) -> Iterator[Example]:
    """Yields the examples of a folder, whatever form it has; arguments as in `list_examples`."""
    entries = sorted(entry for entry in folder.iterdir() if not entry.name.startswith("."))
    records = [entry for entry in entries if is_record_file(entry)]
    tables = [entry for entry in entries if entry.suffix.lower() in TABLE_SUFFIXES]
    if records:
        yield from list_records(records)
    elif len(tables) == 1:
        yield from list_table(tables[0], several_labels)
    elif len(tables) > 1:
        names = ", ".join(table.name for table in tables)
        raise ValueError(f"{folder} holds several tables: {names}. Give one of them.")
    else:
        folders = [entry for entry in entries if entry.is_dir()]
        yield from list_class_folders(folder, folders, others)


def list_class_folders(
    folder: Path, folders: list[Path], others: Counter[str]
) -> Iterator[Example]:
    """Yields the pictures in class folders, or in those of each part, and counts other files."""
    parts = [entry for entry in folders if entry.name.lower() in PART_NAMES]
    if not parts:
        classes: list[tuple[Path, str | None]] = [(entry, None) for entry in folders]
    else:
        check_beside(folder, parts, folders)
        names = {PART_NAMES[part.name.lower()] for part in parts}
        classes = [
            # Where there is no other part, a fraction of train is held out.
            (entry, None if names == {TRAIN} else PART_NAMES[part.name.lower()])
            for part in parts
            for entry in sorted(part.iterdir())
            if entry.is_dir() and not entry.name.startswith(".")
        ]
    found = False
    for entry, part in classes:
        labels = (entry.name,)
        for path in pictures_below(entry, others):
            found = True
            yield Example(path.relative_to(folder).as_posix(), path, labels, part)
    if not found:
        found_instead = f" It holds {format_suffixes(others)}." if others else ""
        raise ValueError(f"{folder} holds no picture in a class folder.{found_instead} {LAYOUT}.")


def check_beside(folder: Path, parts: list[Path], folders: list[Path]) -> None:
    """Raises ValueError if folders beside those of the parts hold pictures, which would be lost."""
    beside = [entry for entry in folders if entry not in parts and any(pictures_below(entry))]
    if beside:
        raise ValueError(
            f"{folder} holds pictures in {beside[0].name}/ beside the part {parts[0].name}/, which "
            "would not be seen. Put every class folder into a part, or rename a class with the "
            "name of a part."
        )


def pictures_below(folder: Path, others: Counter[str] | None = None) -> Iterator[Path]:
    """Yields the picture files of a folder and of those in it, sorted, hidden ones left out.

    The files that are no pictures are counted by suffix.

    Raises:
        ValueError: a link leads back to a folder that it is in.
        OSError: a folder cannot be read.
    """
    for path in files_below(folder):
        if path.name.lower().endswith(SUFFIXES):
            yield path
        elif others is not None:
            others[suffix_of(path)] += 1


def list_table(path: Path, several_labels: bool = False) -> Iterator[Example]:
    """Yields the examples of a table, whose paths are relative to its folder.

    It is in UTF-8, and its first row names the columns. A row may have several labels, joined by
    `|`.

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

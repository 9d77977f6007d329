"""The examples of a folder, a table or record files, one after the other, in a fixed order."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from towers.data.folders import files_below, format_suffixes, suffix_of
from towers.data.image_files.decoding import SUFFIXES
from towers.data.image_files.examples import PART_NAMES, TRAIN, Example
from towers.data.image_files.records import is_record_file, list_records
from towers.data.image_files.tables import TABLE_SUFFIXES, list_table

LAYOUT = (
    "Expected class folders (FOLDER/CLASS/PICTURE.jpg), folders train/, val/ or test/ of class "
    "folders, a CSV or TSV file with the columns path and label, or TFRecord or "
    "ArrayRecord files"
)


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
            # Where there is no other part, a share of train is held out.
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

    Args:
        folder: the folder.
        others: counts the files that are no pictures, by suffix.

    Raises:
        ValueError: a link leads back to a folder that it is in.
        OSError: a folder cannot be read.
    """
    for path in files_below(folder):
        if path.name.lower().endswith(SUFFIXES):
            yield path
        elif others is not None:
            others[suffix_of(path)] += 1

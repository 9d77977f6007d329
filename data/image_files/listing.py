"""The examples of a folder, a table or record files, one after the other, in a fixed order."""

from __future__ import annotations

import dataclasses
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from towers.data.folders import (
    TRAIN,
    files_below,
    folders_below,
    format_suffixes,
    is_of_system,
    part_of_folder,
    suffix_of,
    words_of,
)
from towers.data.image_files.decoding import SUFFIXES
from towers.data.image_files.parquet import PARQUET, unpacked
from towers.data.image_files.records import (
    NAME_FILES,
    Example,
    class_names_beside,
    is_record_file,
    list_records,
)
from towers.data.image_files.tables import TABLE_SUFFIXES, list_table
from towers.ground.progress import count_of

LAYOUT = (
    "Expected class folders (FOLDER/CLASS/PICTURE.jpg), folders train/, val/ or test/ of class "
    "folders, a CSV or TSV file with the columns path and label, metadata.jsonl, or Parquet, "
    "TFRecord or ArrayRecord files"
)
REFUSED, CLASSES, ONE = NESTED = ("refused", "classes", "one")
MOST_NAMED = 8  # Files beside folders that the summary names.


class Reading(NamedTuple):
    """How a folder or a table is understood.

    Attributes:
        several_labels: whether a row of a table has any number of labels.
        columns: of a table, the names of the columns of the path and of the label.
        nested: what folders with pictures in a class folder are: `refused`, `classes` of their own,
            or of `one` class.
        cache: where Parquet files are unpacked.
    """

    several_labels: bool = False
    columns: tuple[str, ...] = ()
    nested: str = REFUSED
    cache: Path | None = None


@dataclasses.dataclass
class Listed:
    """What a listing says besides its examples.

    Attributes:
        others: how many files in class folders are no pictures, by suffix.
        notes: sentences about what else is not taken.
        class_names: in the order of the labels, where these are numbers.
    """

    others: Counter[str] = dataclasses.field(default_factory=Counter)
    notes: list[str] = dataclasses.field(default_factory=list)
    class_names: tuple[str, ...] | None = None


USUAL_READING = Reading()


def list_examples(
    path: str | os.PathLike[str], reading: Reading = USUAL_READING, listed: Listed | None = None
) -> Iterator[Example]:
    """Yields the examples of a folder or of a file.

    Args:
        path: a folder of class folders, of `train/`, `val/` or `test/` folders of those, of one
            table, of Parquet or of record files; or one of these files.
        reading: how it is understood.
        listed: is filled with what else there is to say.

    Raises:
        FileNotFoundError: there is no such file or folder.
        ValueError: it has none of these forms.
    """
    path, listed = Path(path), Listed() if listed is None else listed
    if not path.exists():
        raise FileNotFoundError(f"{path} does not exist. {LAYOUT}.")
    if path.is_dir():
        yield from list_folder(path, reading, listed)
    elif is_table(path):
        yield from table_of(path, reading, listed)
    elif path.suffix == PARQUET:
        yield from parquet_of([path], reading, listed)
    elif is_record_file(path):
        yield from list_records([path])
    else:
        raise ValueError(f"{path} is no image set. {LAYOUT}.")


def is_table(path: Path) -> bool:
    """Returns whether a file is a table of pictures."""
    return path.suffix.lower() in TABLE_SUFFIXES or path.name == "metadata.jsonl"


def is_taken(path: Path) -> bool:
    """Returns whether a file that lies beside folders may be a part of an image set."""
    is_kept = path.suffix in (PARQUET, ".yaml") or is_record_file(path) or path.name in NAME_FILES
    return is_kept or is_table(path) or path.name.lower().endswith(SUFFIXES)


def tables_in(folder: Path) -> list[Path]:
    """Returns the tables that lie in a folder itself."""
    return [entry for entry in visible(folder) if is_table(entry)]


def table_of(path: Path, reading: Reading, listed: Listed) -> Iterator[Example]:
    """Yields the examples of a table, and notes the columns that are not used."""
    return list_table(path, reading.columns, reading.several_labels, listed.notes)


def parquet_of(paths: list[Path], reading: Reading, listed: Listed) -> Iterator[Example]:
    """Yields the examples of Parquet files, and tells the names of their classes.

    They have the names of their files, and of the folders of these if there are several.
    """
    records = unpacked(paths, reading.cache)
    top = os.path.commonpath([path.parent for path in paths])
    beside = {class_names_beside(folder) for folder in {record.parent for record in records}}
    if len(beside - {None}) > 1:
        raise ValueError(
            f"{top} holds Parquet files of several data sets, whose classes have other names. Give "
            "the folder of one of them."
        )
    listed.class_names = max(beside, key=bool)
    return list_records(records, [path.relative_to(top).as_posix() for path in paths])


def list_folder(folder: Path, reading: Reading, listed: Listed) -> Iterator[Example]:
    """Yields the examples of a folder, whatever form it has; arguments as in `list_examples`."""
    top = descend(folder)
    entries = visible(top)
    records = [entry for entry in entries if is_record_file(entry)]
    parquet = [entry for entry in entries if entry.suffix == PARQUET]
    if not parquet and not records:  # The Hub keeps Parquet files in data/.
        parquet = [one for e in entries if e.is_dir() for one in e.glob(f"*{PARQUET}")]
    tables = tables_in(top)
    check_no_boxes(top, entries)
    others = [one.name for one in entries if not one.is_dir() and not is_taken(one)]
    if others and not parquet and not records:
        listed.notes.append(f"not used of {top}: {', '.join(others[:MOST_NAMED])}")
    if records:
        yield from list_records(records)
    elif parquet:
        yield from parquet_of(sorted(parquet), reading, listed)
    elif len(tables) == 1:
        named = set[str]()
        for example in table_of(tables[0], reading, listed):
            named.add(os.path.abspath(example.path))
            yield example
        if left := sum(os.path.abspath(path) not in named for path in pictures_below(top)):
            listed.notes.append(
                f"left out {count_of(left, 'picture')} that {tables[0].name} does not name"
            )
    elif len(tables) > 1:
        names = ", ".join(table.name for table in tables)
        raise ValueError(
            f"{folder} holds several tables: {names}. Give one of them, or a folder of classes."
        )
    else:
        yield from list_class_folders(folder, top, reading, listed)


def descend(folder: Path, *, into_parts: bool = False) -> Path:
    """Returns the folder that holds the data: a folder's only one, if that holds folders.

    Args:
        folder: the folder.
        into_parts: whether the only one may have the name of a part.
    """
    while True:
        entries = [entry for entry in visible(folder) if entry.is_dir() or is_taken(entry)]
        is_one = len(entries) == 1 and entries[0].is_dir()
        if not is_one or (part_of_folder(entries[0].name) and not into_parts):
            return folder
        if not any(entry.is_dir() or is_table(entry) for entry in visible(entries[0])):
            return folder
        folder = entries[0]


def visible(folder: Path) -> list[Path]:
    """Returns what is in a folder, sorted, without what is hidden or written by systems."""
    entries = (entry for entry in folder.iterdir() if not is_of_system(entry.name))
    return sorted(entries)


def list_class_folders(
    folder: Path, top: Path, reading: Reading, listed: Listed
) -> Iterator[Example]:
    """Yields the pictures in class folders, or in those of each part, and counts other files."""
    folders = [entry for entry in visible(top) if entry.is_dir()]
    parts = {entry: part for entry in folders if (part := part_of_folder(entry.name)) is not None}
    parts = parts or parts_among(folders)
    found, classes = False, list[tuple[Path, str | None]]()
    if parts:
        check_beside(top, list(parts), folders)
        parts = with_classes(parts, listed)
        only_train = {*parts.values()} == {TRAIN}  # Then a fraction of it is held out.
        for parent, name in parts.items():
            part = None if only_train else name
            if parent.is_file():
                above = parent.parent.relative_to(folder).as_posix()
                for one in table_of(parent, reading, listed):
                    found = True
                    yield one._replace(name=f"{above}/{one.name}", part=one.part or part)
            else:
                classes += [(entry, part) for entry in class_folders(parent, listed)]
    else:
        check_no_parts_below(top, folders)
        classes = [(entry, None) for entry in class_folders(top, listed)]
    for entry, part in classes:
        is_empty = True
        for label, path in labelled(entry, reading.nested, listed):
            found, is_empty = True, False
            yield Example(path.relative_to(folder).as_posix(), path, (label,), part)
        if is_empty:
            listed.notes.append(f"no picture in the class folder {entry.relative_to(folder)}/")
    if not found:
        others = format_suffixes(Counter(map(suffix_of, files_below(folder))))
        found_instead = f" It holds {others}." if others else ""
        found_instead += "".join(f" {note[0].upper()}{note[1:]}." for note in listed.notes)
        raise ValueError(f"{folder} holds no picture in a class folder.{found_instead} {LAYOUT}.")


def parts_among(folders: list[Path]) -> dict[Path, str]:
    """Returns the parts of folders whose names differ in these alone, such as `cars_train`."""
    if sum(any(map(part_of_folder, words_of(entry.name))) for entry in folders) < 2:
        return {}
    names = [words_of(entry.name) for entry in folders if any(pictures_below(entry))]
    shared = [word for word in names[0] if all(word in own for own in names)] if names else []
    parts = {entry: part_of_folder(entry.name, shared) for entry in folders}
    found = {entry: part for entry, part in parts.items() if part is not None}
    return found if len(found) == len(names) and len({*found.values()}) > 1 else {}


def with_classes(parts: dict[Path, str], listed: Listed) -> dict[Path, str]:
    """Returns the parts whose pictures are in class folders, or in a table; notes the others."""
    kept = {}
    for entry, part in parts.items():
        inner = descend(entry, into_parts=True)
        classes = [one for one in visible(inner) if one.is_dir() and any(pictures_below(one))]
        if len(classes) > 1 or any(words_of(one.name) for one in classes if one.name != inner.name):
            kept[inner] = part
        elif len(tables := tables_in(entry)) == 1:
            kept[tables[0]] = part
        elif count := sum(1 for _ in pictures_below(entry)):
            number = count_of(count, "picture")
            listed.notes.append(f"left out {number} of {entry.name}/, which are in no class folder")
    return kept


def class_folders(parent: Path, listed: Listed) -> list[Path]:
    """Returns the folders in a folder; pictures beside them are noted."""
    entries = visible(parent)
    beside = [entry for entry in entries if entry.name.lower().endswith(SUFFIXES)]
    if beside:
        listed.notes.append(
            f"left out {count_of(len(beside), 'picture')} of {parent} in no class folder, such as "
            f"{beside[0].name}"
        )
    return [entry for entry in entries if entry.is_dir()]


def labelled(folder: Path, nested: str, listed: Listed) -> Iterator[tuple[str, Path]]:
    """Yields the pictures of a class folder, each with its label; other files are counted."""
    found: dict[Path, list[Path]] = {}
    for here, names in folders_below(folder):
        for path in (here / name for name in names):
            if path.name.lower().endswith(SUFFIXES):
                found.setdefault(here, []).append(path)
            else:
                listed.others[suffix_of(path)] += 1
    if nested == REFUSED and len(found) > 1:
        first = ", ".join(here.name for here in list(found)[:3])
        raise ValueError(
            f"{folder} holds pictures in several folders ({first}). Add --set nested=classes if "
            "each is a class of its own, or --set nested=one if all are of one class."
        )
    for here, paths in found.items():
        inner = here.relative_to(folder).as_posix() if nested == CLASSES else "."
        for path in paths:
            yield folder.name if inner == "." else f"{folder.name}/{inner}", path


def check_beside(folder: Path, parts: list[Path], folders: list[Path]) -> None:
    """Raises ValueError if folders beside those of the parts hold pictures, which would be lost."""
    beside = [entry for entry in folders if entry not in parts and any(pictures_below(entry))]
    if beside:
        raise ValueError(
            f"{folder} holds pictures in {beside[0].name}/ beside the part {parts[0].name}/, which "
            "would not be seen. Put every class folder into a part, or rename a class with the "
            "name of a part."
        )


def check_no_parts_below(folder: Path, folders: list[Path]) -> None:
    """Raises ValueError for a folder of several in which parts are, not classes."""
    holding = {
        entry: parts[0].name
        for entry in folders
        if (parts := [one for one in visible(entry) if one.is_dir() and part_of_folder(one.name)])
    }
    if not holding or len(folders) == 1:
        return
    first, part = next(iter(holding.items()))
    if len(holding) == 1:
        raise ValueError(
            f"{folder} holds {first.name}/ with the part {part}/ beside other folders. Give the "
            f"folder that holds the parts, such as --data {first}."
        )
    raise ValueError(
        f"{folder} holds parts in several folders: {', '.join(one.name for one in holding)}. If "
        f"these are classes, move them into the parts ({part}/{first.name}/); else give one of "
        f"them, such as --data {first}."
    )


def check_no_boxes(folder: Path, entries: list[Path]) -> None:
    """Raises ValueError for a data set whose pictures have boxes or masks, and no class."""
    parts = [entry for entry in entries if entry.is_dir() and part_of_folder(entry.name)]
    kind = next(filter(None, map(kind_of_boxes, [folder, *parts])), "")
    if kind:
        raise ValueError(
            f"{folder} is a data set of {kind}: its pictures have boxes or masks, and no class of "
            f"their own. Cut what is to be told apart out into class folders. {LAYOUT}."
        )


def kind_of_boxes(folder: Path) -> str:
    """Returns what a folder's pictures have in place of classes, or nothing."""
    names = {entry.name.lower() for entry in visible(folder)}
    folders = {entry.name.lower(): entry for entry in visible(folder) if entry.is_dir()}
    inner = files_below(folders["annotations"]) if "annotations" in folders else ()
    suffixes = {path.suffix.lower() for path in inner} & {".json", ".xml"}
    if suffixes or "_annotations.coco.json" in names:
        return "detection (VOC)" if ".xml" in suffixes else "detection (COCO)"
    if "images" not in folders:
        return ""
    if any(any(pictures_below(folders[one])) for one in ("masks", "labels") if one in folders):
        return "segmentation"
    is_yolo = "labels" in folders or names & {"data.yaml", "dataset.yaml"}
    return "detection (YOLO)" if is_yolo else ""


def pictures_below(folder: Path) -> Iterator[Path]:
    """Yields the pictures among `files_below`, in their order; raises as that does."""
    return (path for path in files_below(folder) if path.name.lower().endswith(SUFFIXES))

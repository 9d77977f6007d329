"""Tables of pictures: a row for each, with its path and its label, as people write them."""

from __future__ import annotations

import ast
import contextlib
import csv
import io
import itertools
import json
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from towers.data.folders import PART_NAMES, files_below, open_file
from towers.data.image_files.decoding import SUFFIXES
from towers.data.image_files.records import Example

TABLE_SUFFIXES = (".csv", ".tsv")
SEPARATOR, COMMAS, BLANKS = "|", ", and ;", "blanks"  # Of labels.
SEPARATORS = {SEPARATOR: r"\|", COMMAS: r"[|,;]", BLANKS: r"[|\s,;]+"}
PATH_COLUMNS = (
    "path", "file", "filename", "file_name", "filepath", "image_path", "img_path", "image", "img",
    "image_name", "image_id", "picture", "photo", "id",
)  # fmt: skip
LABEL_COLUMNS = (
    "label", "labels", "class", "class_name", "classname", "category", "target", "tags", "tag",
)  # fmt: skip
PART_COLUMNS = ("split", "part", "subset", "partition")
LOOKED_AT = 200  # Rows by which a table is understood.
ONE_HOT = {"0": False, "1": True, "0.0": False, "1.0": True}
Row = tuple[str, list[str]]  # Where it stands, and its cells.


class JsonCell(str):
    """A value of JSON as the text of a cell.

    Attributes:
        value: a list, an object or a number.
    """

    value: Any


class Columns(NamedTuple):
    """Where a table has what.

    Attributes:
        path, label, part: the number of the column, None without one.
        one_hot: by number, the classes of columns of 0 and 1 in place of a label.
        unused: the names of other columns.
        separator: between several labels, of `SEPARATORS`.
        num_columns: how many columns have a name.
    """

    path: int
    label: int | None
    part: int | None
    one_hot: dict[int, str]
    unused: list[str]
    separator: str
    num_columns: int


def list_table(
    path: Path, columns: Sequence[str], several_labels: bool, notes: list[str]
) -> Iterator[Example]:
    """Yields the examples of a table, whose paths are relative to its folder.

    Args:
        path: of a CSV, TSV or JSON Lines file in UTF-8; a first row names the columns.
        columns: the names of the columns of the path and of the label, if they are not usual.
        several_labels: whether a row has any number of labels.
        notes: gets a sentence about the columns that are not used.

    Raises:
        ValueError: a row is malformed; the message names the file and the line.
    """
    rows = read_rows(path)
    _, header = next(rows, (f"{path}:1", []))
    first = list(itertools.islice(rows, LOOKED_AT))
    found = find_columns(path, header, columns, [cells for _, cells in first])
    if several_labels and found.separator != SEPARATOR:
        notes.append(
            f"labels of {path.name} are divided at {found.separator}, since none of them has |"
        )
    if found.unused:
        notes.append(f"columns of {path.name} that are not used: {', '.join(found.unused)}")
    files = Files(path.parent)
    for place, cells in itertools.chain(first, rows):
        yield example_of(place, cells, found, files, several_labels)


def read_rows(path: Path) -> Iterator[Row]:
    """Yields the rows of a table, the names of its columns first; raises as `list_table`."""
    number = 1
    try:
        with io.TextIOWrapper(open_file(path), "utf-8-sig", newline="") as file:
            if path.suffix == ".jsonl":
                yield from rows_of_json(path, file)
                return
            start = file.readline()
            lines: Iterable[str] = file
            if not re.match(r"sep=.\s*$", start):  # Spreadsheets say so what divides their cells.
                lines = itertools.chain([start], file)
            reader = csv.reader(lines, delimiter=delimiter_of(path, start), strict=True)
            for number, row in enumerate(reader, 1):
                if any(map(str.strip, row)):  # Spreadsheets write empty rows, too.
                    yield f"{path}:{number}", row
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not in UTF-8 ({error.reason}). Save it as UTF-8.") from error
    except csv.Error as error:
        raise ValueError(f"{path}:{number + 1}: {error}.") from error


def rows_of_json(path: Path, lines: Iterable[str]) -> Iterator[Row]:
    """Yields the keys of the first objects, and the values of each one."""
    objects = objects_of_json(path, lines)
    first = list(itertools.islice(objects, LOOKED_AT))
    names = list(dict.fromkeys(name for _, found in first for name in found))
    if first:
        yield first[0][0], names
    for place, found in itertools.chain(first, objects):
        yield place, [cell_of(found.get(name)) for name in names]


def objects_of_json(path: Path, lines: Iterable[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yields where each object stands, and the object."""
    for number, line in enumerate(lines, 1):
        place = f"{path}:{number}"
        if not line.strip():
            continue
        try:
            found = json.loads(line)
        except ValueError as error:
            raise ValueError(f"{place}: the line is no JSON ({error}).") from error
        if not isinstance(found, dict):
            raise ValueError(f"{place}: expected an object. Received {line.strip()[:60]!r}.")
        yield place, found


def cell_of(value: Any) -> str:
    """Returns a JSON value as a cell of a table."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)  # 1.0 is the class 1.
    if isinstance(value, list):
        cell = JsonCell(SEPARATOR.join(map(cell_of, value)))
    else:
        cell = JsonCell("" if value is None else value)
    cell.value = value
    return cell


def delimiter_of(path: Path, start: str) -> str:
    """Returns what divides the cells of a table whose first line this is."""
    if start.startswith("sep="):
        return start[4]
    if path.suffix.lower() == ".tsv":
        return "\t"
    return max(",;\t", key=start.count)


def find_columns(
    path: Path, header: Sequence[str], given: Sequence[str], rows: Sequence[Sequence[str]]
) -> Columns:
    """Returns where a table has what, by the names of its columns or the given ones."""
    names, own = (
        [name.strip().lower().replace(" ", "_") for name in some] for some in (header, given)
    )
    wanted: list[tuple[str, ...]] = [(name,) for name in own]
    wanted = wanted or [PATH_COLUMNS, LABEL_COLUMNS]

    def find(choices: Sequence[str]) -> int | None:
        return next((names.index(name) for name in choices if name in names), None)

    of_path, of_label, of_part = find(wanted[0]), find(wanted[-1]), find(PART_COLUMNS)
    if of_part is None:
        of_part = part_column(rows, {*range(len(names))} - {of_path, of_label})
    if of_label is None and not given and len(names) == 2 and of_part is None:
        of_label = None if of_path is None else 1 - of_path  # Whatever it is called.
    others = [i for i in range(len(names)) if i not in (of_path, of_label, of_part)]
    one_hot = {}
    if of_label is None and not given:
        one_hot = {
            i: header[i].strip()
            for i in others
            if rows and all(len(row) > i and row[i].strip() in ONE_HOT for row in rows)
        }
    if of_path is None or (of_label is None and len(one_hot) < 2):
        raise ValueError(
            f"{path}:1: the first row has to name the columns path and label (and maybe split); "
            "other names are given with --set columns=PATH,LABEL. Received "
            f"{', '.join(header) or 'an empty row'}."
        )
    unused = [header[i] for i in others if i not in one_hot and header[i].strip()]
    labels = [] if of_label is None else [row[of_label] for row in rows if len(row) > of_label]
    separator = separator_of([label.strip() for label in labels if list_in(label) is None])
    return Columns(of_path, of_label, of_part, one_hot, unused, separator, len(header))


def part_column(rows: Sequence[Sequence[str]], columns: Iterable[int]) -> int | None:
    """Returns which of some columns has the name of a part in every row, None without one."""
    names = {i: {row[i].strip().lower() for row in rows if len(row) > i} for i in columns}
    return next((i for i in names if names[i] and names[i] <= PART_NAMES.keys()), None)


def separator_of(labels: Sequence[str]) -> str:
    """Returns what divides labels: bars, commas where most have some, or else blanks."""
    if any(SEPARATOR in label for label in labels):
        return SEPARATOR
    divided = [label for label in labels if re.search(SEPARATORS[BLANKS], label)]
    with_commas = [label for label in divided if re.search(SEPARATORS[COMMAS], label)]
    if not divided:
        return SEPARATOR
    return COMMAS if 2 * len(with_commas) > len(divided) else BLANKS


def list_in(cell: str) -> list[Any] | None:
    """Returns the list that a cell has, in JSON or as Python writes it, or None.

    >>> list_in("['cat', 'red fox']"), list_in("cat")
    (['cat', 'red fox'], None)
    """
    value = getattr(cell, "value", None)
    if value is None and re.fullmatch(r"\s*\[.*\]\s*", cell):
        with contextlib.suppress(ValueError, SyntaxError):
            value = ast.literal_eval(cell.strip())
    return value if isinstance(value, list) else None


def example_of(
    place: str, row: Sequence[str], columns: Columns, files: Files, several_labels: bool
) -> Example:
    """Returns the example of a row; ValueError names its place."""
    needed = [columns.path, columns.label or 0, columns.part or 0, *columns.one_hot]
    if len(row) <= max(needed):
        raise ValueError(f"{place}: the row has only {len(row)} columns: {row!r}.")
    if any(cell.strip() for cell in row[columns.num_columns :]):
        raise ValueError(
            f"{place}: the row has {len(row)} columns, and the first row names "
            f"{columns.num_columns}: {row!r}. Put a cell that holds what divides them into quotes."
        )
    name, part = row[columns.path].strip(), None
    if not name or "\0" in name:
        raise ValueError(f"{place}: the path is empty or holds a zero byte.")
    cell = None if columns.part is None else row[columns.part]
    if cell is not None and getattr(cell, "value", cell) is not None:  # An object may lack it.
        part = PART_NAMES.get(cell.strip().lower())
        if part is None:
            raise ValueError(f"{place}: split must be train, val or test. Received {cell!r}.")
    labels = labels_of(place, row, columns, several_labels)
    if not several_labels and len(labels) != 1:
        raise ValueError(
            f"{place}: a row has one label. Received {', '.join(labels) or 'none'}. If pictures "
            "have any number of labels, joined by |, add --set multi_label=true."
        )
    return Example(name, files.find(name), labels, part)


def labels_of(
    place: str, row: Sequence[str], columns: Columns, several_labels: bool
) -> tuple[str, ...]:
    """Returns the labels of a row, each once; ValueError for a cell that is neither 0 nor 1."""
    if columns.label is None:
        cells = {name: row[i].strip() for i, name in columns.one_hot.items()}
        wrong = [f"{name} {cell!r}" for name, cell in cells.items() if cell not in ONE_HOT]
        if wrong:
            raise ValueError(f"{place}: columns of classes hold 0 or 1. Received {wrong[0]}.")
        return tuple(name for name, cell in cells.items() if ONE_HOT[cell])
    cell = row[columns.label]
    if isinstance(getattr(cell, "value", None), dict):
        raise ValueError(f"{place}: a label is a text, a number or a list. Received {cell!s}.")
    labels = list_in(cell)
    if labels is not None:
        return tuple(dict.fromkeys(filter(None, (cell_of(one).strip() for one in labels))))
    text = cell.strip()
    is_divided = several_labels or SEPARATOR in text
    pattern = SEPARATORS[columns.separator if several_labels else SEPARATOR]
    found = re.split(pattern, text) if is_divided else [text]
    return tuple(dict.fromkeys(one.strip() for one in found if one.strip()))


class Files:
    """The files that a table names, by their paths or, for numbers and names, without a suffix.

    Args:
        folder: of the table.
    """

    def __init__(self, folder: Path):
        self._folder = folder
        self._by_name: dict[str, list[Path]] = {}  # Or by the name without its suffix.

    def find(self, name: str) -> Path:
        """Returns the path of a file; that of its name if there is none.

        Raises:
            ValueError: several pictures below the folder have this name.
        """
        plain = self._folder / name
        name = name.replace("\\", "/")
        for path in (plain, self._folder / name):
            if path.is_file():
                return path
        if not self._by_name:
            self._by_name = self._list()
        end = f"/{name}"
        found = [
            path
            for path in self._by_name.get(name.rpartition("/")[2], [])
            if path.as_posix().endswith(end) or path.with_suffix("").as_posix().endswith(end)
        ]
        if len(found) > 1:
            raise ValueError(
                f"{self._folder} has several pictures {name}: {found[0]} and {found[1]}. Write "
                "their paths into the table."
            )
        return found[0] if found else plain

    def _list(self) -> dict[str, list[Path]]:
        by_name = defaultdict(list)
        for path in files_below(self._folder):
            if path.name.lower().endswith(SUFFIXES):
                for name in (path.name, path.stem):
                    by_name[name].append(path)
        return by_name

"""Parquet files of pictures, as the Hugging Face Hub has them, unpacked into record files once."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from towers.data.image_files.records import CLASS_NAMES, lines_of_names, make_record, write_records
from towers.data.reading.parquet import rows_of
from towers.ground.durable import make_folder, write_file

PARQUET = ".parquet"
ROWS = 256  # That are in memory.
IMAGE_COLUMNS, LABEL_COLUMNS = ("image", "img", "picture"), ("label", "labels", "fine_label")


def unpacked(paths: Sequence[Path], cache: Path | None) -> list[Path]:
    """Returns record files with the pictures of Parquet files, whose names say their parts.

    Args:
        paths: of the files; a column `image` has bytes and path, a column `label` a number.
        cache: where they are unpacked, by default beside them; what was unpacked is taken as it is.

    Raises:
        ValueError: a file has no such columns or other classes than the ones beside it, or the
            library is not installed.
    """
    found = []
    for path in paths:
        name = hashlib.blake2b(bytes(path.resolve().parent), digest_size=8).hexdigest()
        folder = (cache or path.parent) / f"parquet-{name}"
        status = path.stat()
        found.append(folder / f"{path.stem}-{status.st_size}-{status.st_mtime_ns}.tfrecord")
        if not found[-1].is_file():
            unpack(path, found[-1])
    return found


def unpack(path: Path, target: Path) -> None:
    """Writes the rows of a Parquet file as records, whole or not at all."""
    found: list[str] = []

    def columns_of(schema: Any) -> list[str]:
        found.extend(columns_in(path, schema.names))
        class_names = names_of(schema.metadata or {}, found[1])
        if class_names:
            keep_names(path, target.parent / CLASS_NAMES, lines_of_names(class_names))
        return found

    make_folder(target.parent)
    rows = rows_of(path, columns_of, in_memory=ROWS)
    records = (record_of(path, number, *map(row.get, found)) for number, row in enumerate(rows, 1))
    write_records(target, records)


def keep_names(path: Path, target: Path, lines: bytes) -> None:
    """Writes the names of the classes; ValueError if another file of the folder has others."""
    if target.is_file() and target.read_bytes() != lines:
        raise ValueError(
            f"The classes of {path} are not those of the other Parquet files that were unpacked "
            f"from its folder. Give each data set a folder of its own, or remove {target.parent}."
        )
    write_file(target, lines)


def columns_in(path: Path, names: Sequence[str]) -> list[str]:
    """Returns the columns of the picture and of the label; ValueError if there are none."""
    found = [
        next((one for one in choices if one in names), None)
        for choices in (IMAGE_COLUMNS, LABEL_COLUMNS)
    ]
    if None in found:
        raise ValueError(f"{path} has no columns image and label. It has: {', '.join(names)}.")
    return [name for name in found if name is not None]


def record_of(path: Path, number: int, image: Any, label: Any) -> bytes:
    """Returns the record of a row; ValueError for one without bytes or with another label."""
    encoded = image.get("bytes") if isinstance(image, dict) else image
    if not isinstance(encoded, bytes):
        raise ValueError(
            f"{path}: row {number} has no picture: expected its bytes. Received "
            f"{type(encoded).__name__}; leave the row out."
        )
    if not isinstance(label, int) or label < 0:
        raise ValueError(
            f"{path}: row {number} has no label from 0 on. Received {label!r}; if the file is a "
            "test part without labels, leave it out."
        )
    return make_record(encoded, [int(label)], "")  # It may be a bool.


def names_of(metadata: dict[bytes, bytes], label: str) -> list[str]:
    """Returns the names of the classes that the Hub's metadata hold, in the order of the labels."""
    features = json.loads(metadata.get(b"huggingface", b"{}")).get("info", {}).get("features", {})
    found: list[str] = features.get(label, {}).get("names", [])
    return found

"""An example of an image set: the place of its bytes, its labels and its part."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

TRAIN, VALIDATION, TEST = PARTS = ("train", "validation", "test")
PART_NAMES = {
    "train": TRAIN,
    "training": TRAIN,
    "val": VALIDATION,
    "valid": VALIDATION,
    "validation": VALIDATION,
    "dev": VALIDATION,
    "test": TEST,
    "testing": TEST,
}


class Example(NamedTuple):
    """One example.

    Attributes:
        name: as messages show it: the path below the folder, of a record with its number.
        path: the file.
        labels: the names of its classes; None if they stand in the record.
        part: train, validation or test; None if a share is held out by name.
        offset: where its record begins in the file, in bytes; of ArrayRecord the record's number.
        length: bytes of the record; None for the whole file, 0 of ArrayRecord.
    """

    name: str
    path: Path
    labels: tuple[str, ...] | None
    part: str | None
    offset: int = 0
    length: int | None = None

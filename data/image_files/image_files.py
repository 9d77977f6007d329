"""An image set in files: its classes and parts, without the pictures themselves."""

from __future__ import annotations

import dataclasses
import hashlib
import os
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from towers.data.folders import format_suffixes
from towers.data.image_files.checking import Finding, check_examples
from towers.data.image_files.listing import list_examples
from towers.data.image_files.records import (
    PARTS,
    TRAIN,
    VALIDATION,
    Example,
    class_names_beside,
    read_picture,
)

MOST_NAMED = 10  # Broken pictures that the summary names.


@dataclasses.dataclass(frozen=True)
class Part:
    """The examples of a part, column by column, in a fixed order.

    Attributes:
        names: as messages show them.
        paths: the files.
        offsets, lengths: int64, as in `Example`; length -1 for a whole file.
        labels: the numbers of each example's classes.
        is_jpeg: whether all pictures are JPEGs.
    """

    names: list[str]
    paths: list[str]
    offsets: np.ndarray
    lengths: np.ndarray
    labels: list[tuple[int, ...]]
    is_jpeg: bool

    def __len__(self) -> int:
        return len(self.names)

    def picture(self, row: int) -> bytes:
        """Returns the bytes of an example's picture."""
        length = int(self.lengths[row])
        offset = int(self.offsets[row])
        return read_picture(self.paths[row], offset, None if length < 0 else length)[0]


@dataclasses.dataclass(frozen=True)
class ImageFiles:
    """An image set in files.

    Attributes:
        path: of the folder or the file.
        class_names: in the order of the labels.
        parts: by name; a part without an example is absent.
        broken: names of the pictures that are left out, with the reasons.
        others: how many files in class folders are no pictures, by suffix.
        key: a digest of the labels and of the pictures' bytes, in their order.
    """

    path: Path
    class_names: tuple[str, ...]
    parts: dict[str, Part]
    broken: list[str]
    others: Counter[str]
    key: str

    @property
    def num_classes(self) -> int:
        """The number of classes."""
        return len(self.class_names)

    @property
    def no_examples(self) -> Part:
        """A part without an example."""
        none = np.zeros([0], np.int64)
        return Part([], [], none, none, [], is_jpeg=True)

    def part(self, name: str) -> Part:
        """Returns a part; ValueError that says which parts there are."""
        if name not in self.parts:
            raise ValueError(
                f"{self.path} has no {name} part. It has: {', '.join(self.parts)}. Put pictures "
                f"into a folder {name}/, or hold out a larger fraction of pictures that are in no "
                "part (--set validation_share=0.2)."
            )
        return self.parts[name]

    @property
    def summary(self) -> list[str]:
        """Lines about what there is, and what is left out and why."""
        counts = ", ".join(f"{len(part):,} {name}" for name, part in self.parts.items())
        lines = [f"{counts} pictures of {self.num_classes} classes in {self.path}"]
        if self.broken:
            lines.append(f"left out {len(self.broken)} pictures that cannot be decoded:")
            lines += [f"  {text}" for text in self.broken[:MOST_NAMED]]
            if len(self.broken) > MOST_NAMED:
                lines.append(f"  and {len(self.broken) - MOST_NAMED} more")
        if self.others:
            others = format_suffixes(self.others)
            lines.append(f"left out files that are no JPEG, PNG, WebP, BMP or GIF: {others}")
        return lines


def open_image_files(
    path: str | os.PathLike[str],
    cache: Path,
    *,
    validation_share: float = 0.1,
    several_labels: bool = False,
    max_broken: int = 100,
    threads: int | None = None,
) -> ImageFiles:
    """Returns an image set, each picture checked now or earlier.

    Args:
        path: as `list_examples` takes it.
        cache: the folder that keeps what the check found.
        validation_share: fraction of the examples that are held out, where nothing says to which
            part they belong: chosen by their names, so that new pictures move no others.
        several_labels: whether an example has any number of labels.
        max_broken: the most pictures that may be left out since they cannot be decoded.
        threads: that check; by default one per core.

    Raises:
        FileNotFoundError: there is no such file or folder.
        ValueError: it is no image set, it has fewer than two classes, or too much of it is broken.
    """
    builder = Builder(Path(path), max_broken)
    listed = list_examples(path, several_labels=several_labels, others=builder.others)
    for example, finding in check_examples(listed, cache, threads=threads):
        builder.add(example, finding, example.part or held_out_part(example, validation_share))
    return builder.finish(several_labels)


def held_out_part(example: Example, fraction: float) -> str:
    """Returns validation or train, a function of the example's name alone."""
    name = os.fsencode(example.name)
    number = int.from_bytes(hashlib.blake2b(name, digest_size=8).digest(), "big")
    return VALIDATION if number < fraction * 2**64 else TRAIN


class Builder:
    """Collects the examples of an image set, at most so many of them broken.

    Attributes:
        others: how many files are no pictures, by suffix.
    """

    def __init__(self, path: Path, max_broken: int):
        self.others: Counter[str] = Counter()
        self._path, self._max_broken = path, max_broken
        self._columns: dict[str, list[tuple[str, str, int, int]]] = {name: [] for name in PARTS}
        self._labels: dict[str, list[tuple[str, ...]]] = {name: [] for name in PARTS}
        self._digests = {name: hashlib.blake2b(digest_size=16) for name in PARTS}
        self._not_jpeg: set[str] = set()
        self._broken: list[str] = []

    def add(self, example: Example, finding: Finding, part: str) -> None:
        """Adds an example, or names it if it is broken; ValueError if too many are."""
        if finding.problem:
            self._broken.append(f"{example.name}: {finding.problem}")
            if len(self._broken) > self._max_broken:
                named = "; ".join(self._broken[:3])
                raise ValueError(
                    f"More than {self._max_broken} pictures of {self._path} cannot be decoded, "
                    f"such as {named}. Repair them, or raise the bound with --set max_broken=N."
                )
            return
        labels = finding.labels if example.labels is None else example.labels
        length = -1 if example.length is None else example.length
        row = (example.name, str(example.path), example.offset, length)
        self._columns[part].append(row)
        self._labels[part].append(labels or ())
        self._digests[part].update(finding.digest)
        if not finding.is_jpeg:
            self._not_jpeg.add(part)

    def finish(self, several_labels: bool) -> ImageFiles:
        """Returns the image set."""
        class_names, numbers = self._classes()
        parts = {
            name: self._part(name, columns, numbers, several_labels)
            for name, columns in self._columns.items()
            if columns
        }
        if len(class_names) < 2 or not parts:
            raise ValueError(
                f"{self._path} has {len(class_names)} classes ({', '.join(class_names)}). Expected "
                "at least two, each with a picture that can be decoded."
                + (f" Left out were {'; '.join(self._broken[:3])}." if self._broken else "")
            )
        key = hashlib.blake2b("\n".join(class_names).encode("utf-8", "replace"), digest_size=16)
        for name, part in parts.items():
            key.update(f"{name} {part.labels}".encode())
            key.update(self._digests[name].digest())
        digest = key.hexdigest()
        return ImageFiles(self._path, class_names, parts, self._broken, self.others, digest)

    def _classes(self) -> tuple[tuple[str, ...], dict[str, int]]:
        """Returns the names of the classes, and the number of each label."""
        found = {label for labels in self._labels.values() for one in labels for label in one}
        are_numbers = all(re.fullmatch(r"-?[0-9]+", label) for label in found)
        names = class_names_beside(self._path)
        if names and are_numbers and found and min(map(int, found)) >= 0:
            largest = max(map(int, found))
            if largest >= len(names):
                raise ValueError(
                    f"{self._path} has the label {largest}, and labels.txt beside it only "
                    f"{len(names)} names, for the labels 0 to {len(names) - 1}."
                )
            return names, {label: int(label) for label in found}
        ordered = sorted(sorted(found), key=int) if are_numbers else sorted(found)
        return tuple(ordered), {label: number for number, label in enumerate(ordered)}

    def _part(
        self,
        name: str,
        columns: Sequence[tuple[str, str, int, int]],
        numbers: dict[str, int],
        several_labels: bool,
    ) -> Part:
        labels = [tuple(sorted(numbers[one] for one in given)) for given in self._labels[name]]
        names, paths, offsets, lengths = (list(column) for column in zip(*columns, strict=True))
        if not several_labels:
            check_single(names, labels)
        where = np.array(offsets, np.int64), np.array(lengths, np.int64)
        return Part(names, paths, *where, labels, name not in self._not_jpeg)


def check_single(names: Sequence[str], labels: Sequence[tuple[int, ...]]) -> None:
    """Raises ValueError unless each example has one label."""
    for name, numbers in zip(names, labels, strict=True):
        if len(numbers) != 1:
            raise ValueError(
                f"{name} has {len(numbers)} labels. Expected one (in a record the number under "
                "image/class/label or label); if pictures have any number of labels, add --set "
                "multi_label=true."
            )

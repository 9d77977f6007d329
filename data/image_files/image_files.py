"""An image set in files: its classes and parts, without the pictures themselves."""

from __future__ import annotations

import dataclasses
import hashlib
import os
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from towers.data.folders import PARTS, TRAIN, VALIDATION, format_suffixes
from towers.data.image_files.checking import Finding, check_examples
from towers.data.image_files.decoding import (
    ANY,
    DEEP_PICTURE,
    FLAT,
    JPEG,
    PLAIN,
    REWRITTEN,
    TRANSPARENT,
    TURNED,
    UPRIGHT_JPEG,
    viewable,
)
from towers.data.image_files.listing import USUAL_READING, Listed, Reading, list_examples
from towers.data.image_files.records import (
    Example,
    class_names_beside,
    read_picture,
)
from towers.ground.progress import count_of

HIGHEST = 2**16 - 1  # Of 16 bits.
MOST_NAMED = 10  # Broken pictures, classes and others that the summary names.
# What is said of pictures with a trait; one of these is not as TensorFlow decodes it.
UNUSUAL = {
    TURNED: "turned upright, as their tags say",
    TRANSPARENT: "put on the background",
    DEEP_PICTURE: "of 16 bits scaled by {highest}",
    REWRITTEN: "rewritten, since TensorFlow does not decode them as viewers do",
}


@dataclasses.dataclass(frozen=True)
class Part:
    """The examples of a part, column by column, in a fixed order.

    Attributes:
        names: as messages show them.
        paths: the files.
        offsets, lengths: int64, as in `Example`; length -1 for a whole file.
        labels: the numbers of each example's classes.
        known: what is known of all pictures, as in `decode_window`.
        is_rewritten: whether some have to be rewritten before TensorFlow decodes them.
    """

    names: list[str]
    paths: list[str]
    offsets: np.ndarray
    lengths: np.ndarray
    labels: list[tuple[int, ...]]
    known: str = ANY
    is_rewritten: bool = False

    def __len__(self) -> int:
        return len(self.names)

    def encoded(self, row: int) -> bytes:
        """Returns the bytes of an example's picture."""
        length = int(self.lengths[row])
        offset = int(self.offsets[row])
        return read_picture(self.paths[row], offset, None if length < 0 else length)[0]

    def picture(self, row: int) -> bytes:
        """Returns the bytes of an example's picture as TensorFlow decodes it rightly."""
        return viewable(self.encoded(row)) if self.is_rewritten else self.encoded(row)

    @property
    def counts(self) -> Counter[int]:
        """How many examples each class has."""
        return Counter(label for labels in self.labels for label in labels)


@dataclasses.dataclass(frozen=True)
class ImageFiles:
    """An image set in files; without pictures, what a network knows that has learnt its classes.

    Attributes:
        class_names: in the order of the labels.
        path: of the folder or the file.
        parts: by name; a part without an example is absent.
        broken: names of the pictures that are left out, with the reasons.
        notes: lines about what is done to pictures, and what is left out.
        highest: the level of 16-bit pictures that becomes 255.
        key: a digest of the labels and of the pictures' bytes, in their order.
    """

    class_names: tuple[str, ...]
    path: Path = Path()
    parts: dict[str, Part] = dataclasses.field(default_factory=dict)
    broken: list[str] = dataclasses.field(default_factory=list)
    notes: list[str] = dataclasses.field(default_factory=list)
    highest: int = HIGHEST
    key: str = "no pictures"

    @property
    def num_classes(self) -> int:
        """The number of classes."""
        return len(self.class_names)

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
        first = f"{counts or 'no'} pictures of {self.num_classes} classes in {self.path}"
        return [first, *self._of_classes(), *self.notes]

    def _of_classes(self) -> Iterator[str]:
        """Yields how many pictures each class has in each part, and which has none to learn."""
        counts = [part.counts for part in self.parts.values()]
        texts = [
            f"{name} {' + '.join(f'{count[number]:,}' for count in counts)}"
            for number, name in enumerate(self.class_names)
        ]
        if counts:
            yield f"{' + '.join(self.parts)}: {', '.join(shortened(texts))}"
        train = self.parts[TRAIN].counts if TRAIN in self.parts else Counter[int]()
        missing = [name for number, name in enumerate(self.class_names) if not train[number]]
        if missing and train:
            yield f"no picture to train on: {', '.join(shortened(missing))}"
        lone = sum(sum(count[n] for count in counts) == 1 for n in range(self.num_classes))
        if lone > max(MOST_NAMED, self.num_classes / 2):
            yield f"{lone:,} classes of one picture each: are these the labels to be told apart?"
        spelled = Counter(map(spelling_of, self.class_names))
        if alike := [name for name in self.class_names if spelled[spelling_of(name)] > 1]:
            yield f"classes that differ in spelling alone: {', '.join(shortened(alike))}"


NO_EXAMPLES = Part([], [], np.zeros([0], np.int64), np.zeros([0], np.int64), [])


def spelling_of(name: str) -> str:
    """Returns what classes share that differ in capitals alone, or are one number as 0 and 0.0."""
    try:
        return repr(float(name))
    except ValueError:
        return name.casefold()


def shortened(texts: Sequence[str], most: int = MOST_NAMED) -> list[str]:
    """Returns the first texts, and how many more there are."""
    more = len(texts) - most
    return [*texts[:most], *([f"{more:,} more"] if more > 0 else [])]


def open_image_files(
    path: str | os.PathLike[str],
    cache: Path,
    reading: Reading = USUAL_READING,
    *,
    validation_share: float = 0.1,
    max_broken: int = 100,
    threads: int | None = None,
    class_names: Sequence[str] = (),
    highest: int = 0,
) -> ImageFiles:
    """Returns an image set, each picture checked now or earlier.

    Args:
        path: as `list_examples` takes it.
        cache: the folder that keeps what the check found.
        reading: how a folder or a table is understood.
        validation_share: fraction that is held out of the examples to train on and of those of
            which nothing says to which part they belong, unless there is a validation part: chosen
            by their names, so that new pictures move no others, and at least one of each class
            that has two.
        max_broken: the most pictures that may be left out since they cannot be decoded.
        threads: that check; by default one per core.
        class_names: those of a trained network, in its order; a class that the data lacks is
            kept.
        highest: the level of 16-bit pictures that becomes 255; 0 for what the data needs.

    Raises:
        FileNotFoundError: there is no such file or folder.
        ValueError: it is no image set, it has fewer than two classes, or too much of it is broken.
    """
    builder = Builder(Path(path), max_broken, validation_share)
    reading = reading._replace(cache=cache)
    listed = list_examples(path, reading, builder.listed)
    for example, finding in check_examples(listed, cache, threads=threads):
        builder.add(example, finding)
    return builder.finish(reading.several_labels, class_names, highest)


def held_out(name: str) -> float:
    """Returns a number from 0 to 1 that follows from the name alone; low ones are held out."""
    digest = hashlib.blake2b(os.fsencode(name), digest_size=8).digest()
    return int.from_bytes(digest, "big") / 2**64


class Builder:
    """Collects the examples of an image set, at most so many of them broken.

    Attributes:
        listed: what the listing said besides.
    """

    def __init__(self, path: Path, max_broken: int, validation_share: float):
        self.listed = Listed()
        self._path, self._max_broken, self._share = path, max_broken, validation_share
        self._rows: list[tuple[Example, Finding, tuple[str, ...]]] = []
        self._broken: list[str] = []
        self._lost: Counter[str] = Counter()

    def add(self, example: Example, finding: Finding) -> None:
        """Adds an example, or names it if it is broken; ValueError if too many are."""
        if not finding.problem:
            labels = finding.labels if example.labels is None else example.labels
            self._rows.append((example, finding, labels or ()))
            return
        self._broken.append(f"{example.name}: {finding.problem}")
        self._lost.update(example.labels or ())
        if len(self._broken) > self._max_broken:
            named = "; ".join(self._broken[:3])
            raise ValueError(
                f"More than {self._max_broken} pictures of {self._path} cannot be decoded, "
                f"such as {named}. Repair them, or raise the bound with --set max_broken=N."
            )

    def finish(self, several_labels: bool, class_names: Sequence[str], highest: int) -> ImageFiles:
        """Returns the image set; arguments as of `open_image_files`."""
        names, numbers = self._classes(class_names)
        parts_of = self._parts(several_labels)
        rows = {part: [row for row, own in zip(self._rows, parts_of, strict=True) if own == part]
                for part in PARTS}  # fmt: skip
        parts = {name: part_of(own, numbers, several_labels) for name, own in rows.items() if own}
        if len(names) < 2 or not parts:
            raise ValueError(
                f"{self._path} needs at least two classes, each with a picture that can be "
                f"decoded. Received {', '.join(names) or 'none'}."
                + (f" Left out were {'; '.join(self._broken[:3])}." if self._broken else "")
                + "".join(f" {note[0].upper()}{note[1:]}." for note in self.listed.notes)
                + " Labels that are not folders need a CSV file with the columns path and label."
            )
        traits = Counter(trait for _, finding, _ in self._rows for trait in finding.traits)
        found = max((finding.highest for _, finding, _ in self._rows), default=0)
        key = hashlib.blake2b("\n".join(names).encode("utf-8", "replace"), digest_size=16)
        for name, part in parts.items():
            key.update(f"{name} {part.labels}".encode())
            of_part = hashlib.blake2b(digest_size=16)
            for _, finding, _ in rows[name]:
                of_part.update(finding.digest)
            key.update(of_part.digest())
        if not traits.keys().isdisjoint(UNUSUAL):
            key.update(b"as viewers show them")  # Earlier releases decoded these otherwise.
        highest = highest or 2 ** found.bit_length() - 1 or HIGHEST
        notes = list(self._notes(traits, highest, self._twice(parts_of)))
        return ImageFiles(names, self._path, parts, self._broken, notes, highest, key.hexdigest())

    def _notes(
        self, traits: Counter[str], highest: int, twice: Sequence[tuple[str, str]]
    ) -> Iterator[str]:
        """Yields what is done to pictures, which of them look wrong, and what is left out."""
        done = [f"{traits[one]:,} {text}" for one, text in UNUSUAL.items() if traits[one]]
        if done:
            yield f"pictures {', '.join(done).format(highest=highest)}"
        if traits[FLAT]:
            yield f"{count_of(traits[FLAT], 'picture')} of one colour"
        if twice:
            pairs = shortened([f"{one} and {other}" for one, other in twice], 3)
            number = count_of(len(twice), "picture")
            yield f"{number} in two classes or parts: {', '.join(pairs)}"
        places = {(example.path, example.offset) for example, *_ in self._rows}
        if again := len(self._rows) - len(places):
            yield f"{count_of(again, 'row')} with a picture that another row has, too"
        yield from self.listed.notes
        if self._broken:
            of = [f"{name} {number:,}" for name, number in self._lost.most_common()]
            whose = f" ({', '.join(shortened(of))})" if of else ""
            left_out = count_of(len(self._broken), "picture")
            yield f"left out {left_out} that cannot be decoded{whose}:"
            yield from (f"  {text}" for text in shortened(self._broken))
        if self.listed.others:
            yield f"left out other files: {format_suffixes(self.listed.others)}"

    def _parts(self, several_labels: bool) -> list[str]:
        """Returns the part of each example; of a class that has two, both parts have one."""
        numbers = [held_out(example.name) for example, *_ in self._rows]
        given = [example.part for example, *_ in self._rows]
        divided = (None,) if VALIDATION in given else (None, TRAIN)
        free = [i for i, part in enumerate(given) if part in divided]
        chosen = {numbers[i] for i in free if numbers[i] < self._share}
        of_class: dict[tuple[str, ...], set[float]] = {}
        for i in free:
            of_class.setdefault(self._rows[i][2], set()).add(numbers[i])
        for own in of_class.values():
            if len(own) > 1 and self._share and not several_labels:
                chosen.add(min(own))
                chosen.discard(max(own))
        return [
            VALIDATION if part in divided and number in chosen else part or TRAIN
            for number, part in zip(numbers, given, strict=True)
        ]

    def _twice(self, parts: Sequence[str]) -> list[tuple[str, str]]:
        """Returns the names of pictures with the same bytes in two classes or parts."""
        first: dict[bytes, int] = {}
        found = []
        for i, (example, finding, labels) in enumerate(self._rows):
            j = first.setdefault(finding.digest, i)
            other, _, other_labels = self._rows[j]
            if (labels, parts[i]) != (other_labels, parts[j]):
                found.append((other.name, example.name))
        return found

    def _classes(self, trained: Sequence[str]) -> tuple[tuple[str, ...], dict[str, int]]:
        """Returns the names of the classes, and the number of each label."""
        found = {label for *_, labels in self._rows for label in labels}
        are_numbers = all(re.fullmatch(r"-?[0-9]+", label) for label in found)
        names = class_names_beside(self._path) or self.listed.class_names
        if names and are_numbers and found and min(map(int, found)) >= 0:
            largest = max(map(int, found))
            if largest >= len(names):
                raise ValueError(
                    f"{self._path} has the label {largest}, and labels.txt beside it only "
                    f"{len(names)} names, for the labels 0 to {len(names) - 1}."
                )
            return names, {label: int(label) for label in found}
        if trained and found <= set(trained):
            return tuple(trained), {label: number for number, label in enumerate(trained)}
        ordered = sorted(sorted(found), key=int) if are_numbers else sorted(found)
        return tuple(ordered), {label: number for number, label in enumerate(ordered)}


def part_of(
    rows: Sequence[tuple[Example, Finding, tuple[str, ...]]],
    numbers: dict[str, int],
    several_labels: bool,
) -> Part:
    """Returns a part with these examples; ValueError if one does not have one label."""
    names = [example.name for example, *_ in rows]
    labels = [tuple(sorted(numbers[one] for one in given)) for *_, given in rows]
    for name, own in zip(names, labels, strict=True) if not several_labels else ():
        if len(own) != 1:
            raise ValueError(
                f"{name} has {len(own)} labels. Expected one (in a record the number under "
                "image/class/label or label); if pictures have any number of labels, add --set "
                "multi_label=true."
            )
    lengths = [-1 if example.length is None else example.length for example, *_ in rows]
    traits = [finding.traits for _, finding, _ in rows]
    known = PLAIN if all(found.isdisjoint(UNUSUAL) for found in traits) else ANY
    return Part(
        names,
        [str(example.path) for example, *_ in rows],
        np.array([example.offset for example, *_ in rows], np.int64),
        np.array(lengths, np.int64),
        labels,
        JPEG if all(UPRIGHT_JPEG in found for found in traits) else known,
        any(REWRITTEN in found for found in traits),
    )

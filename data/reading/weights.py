"""Corpora with weights: how often each file's dialogues are read in an epoch."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

MOST = 1000.0


class WeightedPath(NamedTuple):
    """A file or folder, and how many times its dialogues count."""

    path: Path
    weight: float


def weighted_paths(paths: Iterable[str | os.PathLike[str]]) -> list[WeightedPath]:
    """Returns paths with their weights, from texts such as `a.conv:2`; without a weight it is 1.

    A file whose own name ends in a colon and a number is that file.

    Raises:
        ValueError: a weight is not above 0, or too large.
    """
    weighted = []
    for given in paths:
        path = os.fspath(given)
        match = re.fullmatch(r"(.+):([-+]?[0-9.]+(?:e[-+]?[0-9]+)?)", path)
        if match is None or os.path.exists(path):
            weighted.append(WeightedPath(Path(path), 1.0))
            continue
        try:
            weight = float(match[2])
        except ValueError:
            weight = 0.0
        if not 0 < weight <= MOST:
            raise ValueError(
                f"{path}: expected a weight above 0, up to {MOST:.0f}, behind the colon, such as "
                f"{match[1]}:2. Received {match[2]}."
            )
        weighted.append(WeightedPath(Path(match[1]), weight))
    return weighted


def files_once(weighted: Iterable[WeightedPath]) -> list[tuple[WeightedPath, list[Path]]]:
    """Returns each path with those whose files are left out of it, so that a file is read once.

    A file counts with the weight of what names it most closely: itself, or the deepest folder.

    Raises:
        ValueError: a path has two weights.
    """
    distinct: dict[Path, WeightedPath] = {}
    for one in weighted:
        first = distinct.setdefault(one.path.resolve(), one)
        if first.weight != one.weight:
            raise ValueError(
                f"{one.path}: expected one weight, received {first.weight:g} and {one.weight:g}. "
                "Name it once."
            )
    closest = sorted(distinct, key=lambda path: (path.is_dir(), -len(path.parts)))
    return [(one, closest[: closest.index(path)]) for path, one in distinct.items()]


def num_copies(number: int, weight: float) -> int:
    """Returns how many times the dialogue of a number counts; a hash decides on a fraction.

    >>> [num_copies(number, 2.0) for number in range(3)]
    [2, 2, 2]
    >>> 40 < sum(num_copies(number, 0.5) for number in range(100)) < 60
    True
    """
    digest = hashlib.blake2b(number.to_bytes(8, "little"), digest_size=8, salt=b"weight").digest()
    fraction = weight - int(weight)
    return int(weight) + (int.from_bytes(digest, "little") < fraction * 2**64)


def repeated(
    dialogues: Iterable[tuple[bool, Sequence[str], float]],
) -> Iterator[tuple[bool, Sequence[str]]]:
    """Yields (whether it is held out, dialogue), a training dialogue as often as its weight says.

    Args:
        dialogues: (whether it is held out, dialogue, weight).
    """
    for number, (is_held_out, turns, weight) in enumerate(dialogues):
        for _ in range(1 if is_held_out else num_copies(number, weight)):
            yield is_held_out, turns

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


def weighted_paths(
    paths: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
) -> list[WeightedPath]:
    """Returns paths with their weights, from texts such as `a.conv:2`; without a weight it is 1.

    A file whose own name ends in a colon and a number is that file.

    Raises:
        ValueError: a weight is not above 0, or too large.
    """
    weighted = []
    for given in [paths] if isinstance(paths, str | os.PathLike) else paths:
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


def closest_first(weighted: Sequence[WeightedPath]) -> list[WeightedPath]:
    """Returns paths in the order in which they take their files, so that each is read once.

    With weights, a file is of what names it most closely: itself, or the deepest folder; without
    any, of what names it first.

    Raises:
        ValueError: a path has two weights.
    """
    if all(one.weight == 1 for one in weighted):
        return list(weighted)
    distinct: dict[Path, WeightedPath] = {}
    for one in weighted:
        first = distinct.setdefault(one.path.resolve(), one)
        if first.weight != one.weight:
            raise ValueError(
                f"{one.path}: expected one weight, received {first.weight:g} and {one.weight:g}. "
                "Name it once."
            )
    order = sorted(distinct, key=lambda path: (path.is_dir(), -len(path.parts)))
    return [distinct[path] for path in order]


def num_copies(number: int, weight: float) -> int:
    """Returns how many times the dialogue of a number counts; a hash decides on a fraction.

    >>> [num_copies(number, 2.0) for number in range(3)]
    [2, 2, 2]
    >>> 40 < sum(num_copies(number, 0.5) for number in range(100)) < 60
    True
    """
    fraction = weight - int(weight)
    if not fraction:
        return int(weight)
    digest = hashlib.blake2b(number.to_bytes(8, "little"), digest_size=8, salt=b"weight").digest()
    return int(weight) + (int.from_bytes(digest, "little") < fraction * 2**64)


def repeated(
    dialogues: Iterable[tuple[bool, Sequence[str]]],
) -> Iterator[tuple[bool, Sequence[str]]]:
    """Yields (whether it is held out, dialogue), one to train on as often as its weight says."""
    for number, (is_held_out, turns) in enumerate(dialogues):
        weight = 1.0 if is_held_out else getattr(turns, "weight", 1.0)
        for _ in range(num_copies(number, weight)):
            yield is_held_out, turns

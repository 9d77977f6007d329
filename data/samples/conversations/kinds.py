"""What the dialogues of one kind have in common."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple


class Kind(NamedTuple):
    """A kind of dialogue.

    Attributes:
        name: such as `opposites`.
        phrasings: each the turns of a dialogue, with gaps in braces.
        contents: what fills the gaps of any of the phrasings.
        held_out: whether some combinations are held out; not of small talk without gaps.
    """

    name: str
    phrasings: Sequence[Sequence[str]]
    contents: Sequence[dict[str, str]]
    held_out: bool = True


def both_ways(pairs: Iterable[Sequence[str]]) -> list[dict[str, str]]:
    """Returns a content for each pair and for its reverse."""
    return [
        {"a": a, "b": b} for first, second in pairs for a, b in ((first, second), (second, first))
    ]


def rows(names: str, table: Iterable[Sequence[str]]) -> list[dict[str, str]]:
    """Returns a content for each row of a table, with these names, parted by blanks."""
    return [dict(zip(names.split(), row, strict=True)) for row in table]


def sums(words: Sequence[str], largest: int) -> list[dict[str, str]]:
    """Returns a, b, their sum, and the two numbers after it, for addends up to `largest`."""
    return [
        {
            "a": words[a],
            "b": words[b],
            "c": words[a + b],
            "d": words[a + b + 1],
            "e": words[a + b + 2],
        }
        for a in range(largest + 1)
        for b in range(largest + 1)
    ]


def differences(words: Sequence[str], largest: int) -> list[dict[str, str]]:
    """Returns a, b and a - b for all b up to a, a up to `largest`."""
    return [
        {"a": words[a], "b": words[b], "c": words[a - b]}
        for a in range(largest + 1)
        for b in range(a + 1)
    ]


def comparisons(words: Sequence[str], largest: int) -> list[dict[str, str]]:
    """Returns a, b, the larger and the smaller of them, for all that differ."""
    return [
        {"a": words[a], "b": words[b], "larger": words[max(a, b)], "smaller": words[min(a, b)]}
        for a in range(largest + 1)
        for b in range(largest + 1)
        if a != b
    ]


def neighbours(words: Sequence[str], circle: bool) -> list[dict[str, str]]:
    """Returns words with the one before, and the two after; of a circle the last has some too."""
    count = len(words)
    inner = range(count) if circle else range(1, count - 2)
    return [
        {
            "x": words[i],
            "before": words[i - 1],
            "after": words[(i + 1) % count],
            "later": words[(i + 2) % count],
        }
        for i in inner
    ]

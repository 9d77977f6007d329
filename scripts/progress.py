"""Bars with the time that is left, for whatever takes longer than two seconds."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import TypeVar

import tqdm

DELAY_SECONDS = 2
Item = TypeVar("Item")


def progress(total: int, what: str, unit: str) -> tqdm.tqdm:
    """Returns a bar that shows nothing unless stderr is a terminal, and goes when it is closed.

    Args:
        total: how many there are to count, by `update`.
        what: is done.
        unit: of what is counted.
    """
    hidden = total < 2 or not sys.stderr.isatty()
    return tqdm.tqdm(
        desc=what, total=total, unit=unit, disable=hidden, delay=DELAY_SECONDS, leave=False,
        dynamic_ncols=True,
    )  # fmt: skip


def counted(items: Sequence[Item], what: str, unit: str = "batch") -> Iterator[Item]:
    """Yields the items while a bar shows how many are done."""
    with progress(len(items), what, unit) as bar:
        for item in items:
            yield item
            bar.update()

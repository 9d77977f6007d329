"""The report of reading a text: how much was read, and what was skipped and where first."""

from __future__ import annotations

import dataclasses
from typing import Any

from towers.data.dialogues.report import count


@dataclasses.dataclass
class TextReport:
    """Counts of what was read.

    Attributes:
        num_files: files that were read.
        num_lines: lines in them that are used.
        skipped: {reason: [number, first place]} of what is left out.
    """

    num_files: int = 0
    num_lines: int = 0
    skipped: dict[str, list[Any]] = dataclasses.field(default_factory=dict)

    def skip(self, reason: str, place: str) -> None:
        """Counts an item that is left out."""
        self.skipped.setdefault(reason, [0, place])[0] += 1

    def lines(self) -> list[str]:
        """Returns the report as lines of text."""
        read = f"read {count(self.num_lines, 'line')} from {count(self.num_files, 'file')}"
        return [read] + [
            f"skipped {number:,} {reason}{f' (first: {place})' if place else ''}"
            for reason, (number, place) in self.skipped.items()
        ]

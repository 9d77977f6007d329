"""The report of reading a text: how much was read, and what was skipped and where first."""

from __future__ import annotations

import dataclasses
from typing import Any

from towers.data.reading.report import ENCODING_ADVICE, UNDECODED_SHARE, count

NUL = "lines with NUL characters"
UNDECODED = "lines with many bytes that do not decode"
FEW_UNDECODED = "lines with a few bytes that do not decode, without these"


@dataclasses.dataclass
class TextReport:
    """Counts of what was read.

    Attributes:
        num_files: files that were read.
        num_lines: lines in them that are used.
        skipped: {reason: [number, first place]} of what is left out.
        repaired: {reason: [number, first place]} of what is used, but changed.
    """

    num_files: int = 0
    num_lines: int = 0
    skipped: dict[str, list[Any]] = dataclasses.field(default_factory=dict)
    repaired: dict[str, list[Any]] = dataclasses.field(default_factory=dict)

    def skip(self, reason: str, place: str) -> None:
        """Counts an item that is left out."""
        self.skipped.setdefault(reason, [0, place])[0] += 1

    def repair(self, reason: str, place: str) -> None:
        """Counts an item that is used, but changed."""
        self.repaired.setdefault(reason, [0, place])[0] += 1

    @property
    def suggests_other_encoding(self) -> bool:
        """Whether so many lines do not decode that the encoding is probably wrong."""
        skipped = sum(self.skipped[what][0] for what in (NUL, UNDECODED) if what in self.skipped)
        damaged = sum(number for number, _ in self.repaired.values())
        return skipped + damaged > UNDECODED_SHARE * (self.num_lines + skipped)

    def lines(self) -> list[str]:
        """Returns the report as lines of text."""
        read = f"read {count(self.num_lines, 'line')} from {count(self.num_files, 'file')}"
        changes = [
            f"{what} {number:,} {reason}{f' (first: {place})' if place else ''}"
            for what, counts in (("skipped", self.skipped), ("used", self.repaired))
            for reason, (number, place) in counts.items()
        ]
        return [read, *changes, *([ENCODING_ADVICE] if self.suggests_other_encoding else [])]

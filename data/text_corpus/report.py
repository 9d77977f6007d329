"""The report of reading a text: how much was read, and what was skipped and where first."""

from __future__ import annotations

import dataclasses
from typing import Any

from towers.data.dialogues.report import ENCODING_ADVICE, UNDECODED_SHARE, count

NUL = "lines with NUL characters"
UNDECODED = "lines with bytes that do not decode"


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

    @property
    def suggests_other_encoding(self) -> bool:
        """Whether so many lines do not decode that the encoding is probably wrong."""
        undecoded = sum(self.skipped[what][0] for what in (NUL, UNDECODED) if what in self.skipped)
        return undecoded > UNDECODED_SHARE * (self.num_lines + undecoded)

    def lines(self) -> list[str]:
        """Returns the report as lines of text."""
        read = f"read {count(self.num_lines, 'line')} from {count(self.num_files, 'file')}"
        skipped = [
            f"skipped {number:,} {reason}{f' (first: {place})' if place else ''}"
            for reason, (number, place) in self.skipped.items()
        ]
        return [read, *skipped, *([ENCODING_ADVICE] if self.suggests_other_encoding else [])]

"""The reports of reading files: counts of kept, skipped and changed items, with their places."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

BLANK_LINE = "blank lines"
BLANK_TURN = "blank turns"
NO_LETTER = "turns without a letter or digit"
NUL = "turns with NUL characters"
TOO_LONG = "lines or turns that are too long"
UNDECODED = "turns with bytes that do not decode"
NUL_LINE = "lines with NUL characters"
UNDECODED_LINE = "lines with many bytes that do not decode"
FEW_UNDECODED = "lines with a few bytes that do not decode, without these"
UNDECODED_FRACTION = 0.1  # Of all lines; above this fraction the encoding is probably wrong.
ENCODING_ADVICE = (
    "its encoding may differ: try another (--encoding), such as gb18030, big5, cp1252 or utf-16"
)


@dataclass
class Report:
    """Counts of what was read, with the first places of every problem.

    Attributes:
        num_files: files that were read.
        num_lines: lines in them.
        skipped: {reason: number of items left out}.
        repaired: {reason: number of items that are used, but changed}.
        places: {reason: the first places}.
    """

    num_places: ClassVar[int] = 1
    repaired_verb: ClassVar[str] = "used"

    num_files: int = 0
    num_lines: int = 0
    skipped: Counter[str] = field(default_factory=Counter)
    repaired: Counter[str] = field(default_factory=Counter)
    places: dict[str, list[str]] = field(default_factory=dict)

    def skip(self, reason: str, place: str) -> None:
        """Counts an item that is left out."""
        self.skipped[reason] += 1
        self._remember(f"skipped {reason}", place)

    def repair(self, reason: str, place: str) -> None:
        """Counts an item that is used, but changed."""
        self.repaired[reason] += 1
        self._remember(f"{self.repaired_verb} {reason}", place)

    def changes(self) -> list[str]:
        """Returns a line for each reason, the most frequent first."""
        verbs = {"skipped": self.skipped, self.repaired_verb: self.repaired}
        return [
            f"{verb} {number:,} {reason} (first: {', '.join(self.places[f'{verb} {reason}'])})"
            for verb, counts in verbs.items()
            for reason, number in counts.most_common()
            if number
        ]

    def _remember(self, key: str, place: str) -> None:
        places = self.places.setdefault(key, [])
        if len(places) < self.num_places:
            places.append(place)


@dataclass
class ReadingReport(Report):
    """Counts of dialogues.

    Attributes:
        num_dialogues: dialogues yielded, also without any usable turn.
        num_turns: turns with text in those dialogues.
        notes: further information, such as how a file was interpreted.
    """

    num_places: ClassVar[int] = 3
    repaired_verb: ClassVar[str] = "repaired"

    num_dialogues: int = 0
    num_turns: int = 0
    notes: list[str] = field(default_factory=list)

    def keep(self, dialogue: Sequence[str]) -> None:
        """Counts a dialogue that is yielded."""
        self.num_dialogues += 1
        self.num_turns += sum(map(bool, dialogue))

    def note(self, text: str) -> None:
        """Adds a sentence to the summary."""
        self.notes.append(text)

    def lines(self) -> list[str]:
        """Returns the report as lines of text: the totals, then one line for each reason."""
        return [
            f"read {count(self.num_dialogues, 'dialogue')} of {count(self.num_turns, 'turn')} "
            f"from {count(self.num_files, 'file')} of {count(self.num_lines, 'line')}",
            *self.changes(),
            *self.notes,
            *([ENCODING_ADVICE] if self.suggests_other_encoding else []),
        ]

    def since(self, earlier: ReadingReport) -> ReadingReport:
        """Returns the counts since an earlier copy of this report."""
        return ReadingReport(
            num_files=self.num_files - earlier.num_files,
            num_lines=self.num_lines - earlier.num_lines,
            num_dialogues=self.num_dialogues - earlier.num_dialogues,
            num_turns=self.num_turns - earlier.num_turns,
            skipped=self.skipped - earlier.skipped,
            repaired=self.repaired - earlier.repaired,
            places=self.places,
            notes=self.notes[len(earlier.notes) :],
        )

    @property
    def suggests_other_encoding(self) -> bool:
        """Whether so many lines do not decode that the encoding is probably wrong."""
        undecoded = self.skipped[UNDECODED] + self.repaired[UNDECODED] + self.skipped[NUL]
        # A JSON array may have all its dialogues in one line.
        return undecoded > UNDECODED_FRACTION * max(self.num_lines, self.num_turns)


@dataclass
class TextReport(Report):
    """Counts of lines; `num_lines` are used."""

    @property
    def suggests_other_encoding(self) -> bool:
        """Whether so many lines do not decode that the encoding is probably wrong."""
        skipped = self.skipped[NUL_LINE] + self.skipped[UNDECODED_LINE]
        damaged = skipped + self.repaired[FEW_UNDECODED]
        return damaged > UNDECODED_FRACTION * (self.num_lines + skipped)

    def lines(self) -> list[str]:
        """Returns the report as lines of text."""
        read = f"read {count(self.num_lines, 'line')} from {count(self.num_files, 'file')}"
        advice = [ENCODING_ADVICE] if self.suggests_other_encoding else []
        return [read, *self.changes(), *advice]


def count(number: int, noun: str) -> str:
    """Returns a number with its noun, in the plural unless it is one."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"

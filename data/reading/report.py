"""The report of reading files: counts of kept, skipped and repaired items, with their places."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

BLANK_LINE = "blank lines"
BLANK_TURN = "blank turns"
NO_LETTER = "turns without a letter or digit"
NUL = "turns with NUL characters"
TOO_LONG = "lines or turns that are too long"
UNDECODED = "turns with bytes that do not decode"
NUM_PLACES = 3
UNDECODED_SHARE = 0.1  # Of all lines; above this share the encoding is probably wrong.
ENCODING_ADVICE = (
    "its encoding may differ: try another (--encoding), such as gb18030, big5, cp1252 or utf-16"
)


@dataclass
class ReadingReport:
    """Counts of what was read, with the first few places of every problem.

    Attributes:
        num_files: files that were read.
        num_lines: lines in them.
        num_dialogues: dialogues yielded, also without any usable turn.
        num_turns: turns with text in those dialogues.
        skipped: {reason: number of turns, lines, dialogues or files left out}.
        repaired: {reason: number of items yielded, but changed}.
        places: {reason: the first places, as `file:line`}.
        notes: further information, such as how a file was interpreted.
    """

    num_files: int = 0
    num_lines: int = 0
    num_dialogues: int = 0
    num_turns: int = 0
    skipped: Counter[str] = field(default_factory=Counter)
    repaired: Counter[str] = field(default_factory=Counter)
    places: dict[str, list[str]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def keep(self, dialogue: Sequence[str]) -> None:
        """Counts a dialogue that is yielded."""
        self.num_dialogues += 1
        self.num_turns += sum(map(bool, dialogue))

    def skip(self, reason: str, place: str) -> None:
        """Counts an item that is left out."""
        self.skipped[reason] += 1
        self._remember(f"skipped {reason}", place)

    def repair(self, reason: str, place: str) -> None:
        """Counts an item that is yielded, but changed."""
        self.repaired[reason] += 1
        self._remember(f"repaired {reason}", place)

    def note(self, text: str) -> None:
        """Adds a sentence to the summary."""
        self.notes.append(text)

    def summary_lines(self) -> list[str]:
        """Returns the report as lines of text: the totals, then one line for each reason."""
        return [
            f"read {count(self.num_dialogues, 'dialogue')} of {count(self.num_turns, 'turn')} "
            f"from {count(self.num_files, 'file')} of {count(self.num_lines, 'line')}",
            *self._lines_of("skipped", self.skipped),
            *self._lines_of("repaired", self.repaired),
            *self.notes,
            *([ENCODING_ADVICE] if self.suggests_other_encoding() else []),
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

    def suggests_other_encoding(self) -> bool:
        """Returns whether so many lines do not decode that the encoding is probably wrong."""
        undecoded = self.skipped[UNDECODED] + self.repaired[UNDECODED] + self.skipped[NUL]
        # A JSON array may have all its dialogues in one line.
        return undecoded > UNDECODED_SHARE * max(self.num_lines, self.num_turns)

    def _remember(self, key: str, place: str) -> None:
        places = self.places.setdefault(key, [])
        if len(places) < NUM_PLACES:
            places.append(place)

    def _lines_of(self, verb: str, counts: Counter[str]) -> list[str]:
        return [
            f"{verb} {number:,} {reason} (first: {', '.join(self.places[f'{verb} {reason}'])})"
            for reason, number in counts.most_common()
            if number
        ]


def count(number: int, noun: str) -> str:
    """Returns a number with its noun, in the plural unless it is one."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"

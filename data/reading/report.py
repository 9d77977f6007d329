"""The reports of reading files: counts of kept, skipped and changed items, with their places."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import ClassVar

from towers.ground.progress import count_of

BLANK_LINE = "blank lines"
BLANK_TURN = "blank turns"
NO_LETTER = "turns without a letter or digit"
NUL = "turns with NUL characters"
THOUGHT = "turns without what was thought before them"
TOO_LONG = "lines or turns that are too long"
UNDECODED = "turns with bytes that do not decode"
NUL_LINE = "lines with NUL characters"
UNDECODED_LINE = "lines with many bytes that do not decode"
CUT_LINE = "pieces of lines that are too long"
FEW_UNDECODED = "lines with a few bytes that do not decode, now U+FFFD (blanks in normalised text)"
OF_FILES = "files of"  # In reasons to leave out whole files.
UNDECODED_FRACTION = 0.1  # Of all lines; above this fraction the encoding is probably wrong.
ENCODING_ADVICE = (
    "its encoding may differ: try another (--encoding), such as gb18030, big5, cp1252 or utf-16"
)


MOST_KINDS = 1000  # Of roles and of keys are counted.
SHOWN = 8
MOST_TOLD = 3  # Of one sort.


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
        """Returns a line for each reason, those of whole files first, then the most frequent."""
        verbs = {"skipped": self.skipped, self.repaired_verb: self.repaired}
        return [
            f"{verb} {reason}: {number:,} (first: {', '.join(self.places[f'{verb} {reason}'])})"
            for verb, counts in verbs.items()
            for reason, number in sorted(
                counts.most_common(), key=lambda one: OF_FILES not in one[0]
            )
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
        num_merged: messages that became one turn with the one before.
        roles: {(who sent messages, what he does): number of messages}.
        keys: {(the keys that were taken, those that were not): number of records}.
        notes: further information, such as how a file was interpreted.
    """

    num_places: ClassVar[int] = 3
    repaired_verb: ClassVar[str] = "repaired"

    num_dialogues: int = 0
    num_turns: int = 0
    num_merged: int = 0
    roles: Counter[tuple[str, str | None]] = field(default_factory=Counter)
    keys: Counter[tuple[tuple[str, ...], tuple[str, ...]]] = field(default_factory=Counter)
    notes: list[str] = field(default_factory=list)

    def keep(self, dialogue: Sequence[str]) -> None:
        """Counts a dialogue that is yielded."""
        self.num_dialogues += 1
        self.num_turns += sum(map(bool, dialogue))

    def note(self, text: str) -> None:
        """Adds a sentence to the summary, once."""
        if text not in self.notes:
            self.notes.append(text)

    def hear(self, sender: str, does: str | None) -> None:
        """Counts a message; `does` is None for one that is left out."""
        if len(self.roles) < MOST_KINDS:
            self.roles[sender, does] += 1

    def senders(self) -> list[str]:
        """Returns the senders of messages; none where there may be more than were counted."""
        found = dict.fromkeys(sender.strip() for sender, _ in self.roles)
        return list(found) if len(self.roles) < MOST_KINDS else []

    def take(self, taken: Sequence[str], names: Iterable[str]) -> None:
        """Counts a record of which some keys were taken."""
        if len(self.keys) < MOST_KINDS:
            self.keys[tuple(taken), tuple(names)] += 1

    def understood(self) -> list[str]:
        """Returns at most a line each about the keys and the roles of records."""
        lines = []
        if self.keys:
            taken: Counter[str] = Counter()
            left: Counter[str] = Counter()
            for (used, names), number in self.keys.items():
                taken.update(dict.fromkeys(used, number))
                left.update({name: number for name in names if name not in used})
            unused = f"; not used: {_listed(left)}" if left else ""
            lines.append(f"taken: {_listed(taken)}{unused}")
        if self.roles:
            sides: dict[str | None, Counter[str]] = {}
            for (sender, does), number in self.roles.items():
                sides.setdefault(does, Counter())[sender] += number
            shown = [
                f"{does or 'left out'}: {_listed(counts)}"
                for does, counts in sorted(sides.items(), key=lambda side: side[0] is None)
            ]
            merged = f"; {self.num_merged:,} merged with the one before" if self.num_merged else ""
            lines.append(f"messages by role: {'; '.join(shown)}{merged}")
        return lines

    def lines(self) -> list[str]:
        """Returns the report as a few lines of text: the totals, then a line for each reason."""
        read = f"read {count_of(self.num_dialogues, 'dialogue')} of "
        read += f"{count_of(self.num_turns, 'turn')} from {count_of(self.num_files, 'file')} of "
        return [
            f"{read}{count_of(self.num_lines, 'line')}",
            *self.understood(),
            *_few(self.changes(), "further reason"),
            *_few(self.notes, "further note"),
            *([ENCODING_ADVICE] if self.suggests_other_encoding else []),
        ]

    def since(self, earlier: ReadingReport) -> ReadingReport:
        """Returns the counts since an earlier copy of this report."""
        counts = [one.name for one in fields(self) if one.name not in ("places", "notes")]
        return ReadingReport(
            **{name: getattr(self, name) - getattr(earlier, name) for name in counts},
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
    """Counts of lines; `num_lines` are used.

    Attributes:
        num_documents: records, and files of lines, each of which has its end.
    """

    num_documents: int = 0

    @property
    def suggests_other_encoding(self) -> bool:
        """Whether so many lines do not decode that the encoding is probably wrong."""
        skipped = self.skipped[NUL_LINE] + self.skipped[UNDECODED_LINE]
        damaged = skipped + self.repaired[FEW_UNDECODED]
        return damaged > UNDECODED_FRACTION * (self.num_lines + skipped)

    def lines(self) -> list[str]:
        """Returns the report as lines of text."""
        read = f"read {count_of(self.num_lines, 'line')} from {count_of(self.num_files, 'file')}"
        if self.num_documents:
            read += (
                f": {count_of(self.num_documents, 'document')}, each ended by a token of its own"
            )
        advice = [ENCODING_ADVICE] if self.suggests_other_encoding else []
        return [read, *_few(self.changes(), "further reason"), *advice]


def _few(lines: Sequence[str], noun: str) -> list[str]:
    """Returns one line of the first ones, with a word about those that are left, or none."""
    left = len(lines) - MOST_TOLD
    told = [*lines[:MOST_TOLD], *([f"and {count_of(left, noun)}"] if left > 0 else [])]
    return ["; ".join(told)] if told else []


def _listed(counts: Mapping[str, int]) -> str:
    """Returns names with their numbers, the most frequent first."""
    order = sorted(counts, key=lambda name: -counts[name])
    more = f" and {len(order) - SHOWN} more" if len(order) > SHOWN else ""
    return ", ".join(f"{name[:40]} ({counts[name]:,})" for name in order[:SHOWN]) + more

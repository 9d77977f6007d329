"""One file of dialogues: its decoded lines, its usable turns, and its part of the report."""

from __future__ import annotations

import codecs
import dataclasses
import functools
import re
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from towers.data.compression import Progress, decoded
from towers.data.reading.layout import Layout
from towers.data.reading.mending import Mending
from towers.data.reading.messages import Turns
from towers.data.reading.report import (
    BLANK_LINE,
    BLANK_TURN,
    NO_LETTER,
    NUL,
    THOUGHT,
    TOO_LONG,
    UNDECODED,
    ReadingReport,
)

Dialogue = list[str]

MAX_LINE_CHARACTERS = 100_000
MAX_DIALOGUE_CHARACTERS = 1_000_000
MAX_RECORD_CHARACTERS = 8 * MAX_DIALOGUE_CHARACTERS  # Of a dialogue as JSON.
MAX_DIALOGUE_TURNS = 10_000
NUM_SAMPLE_LINES, SAMPLE_CHARACTERS = 200, 1_000_000
# Decoding writes U+FFFD for invalid bytes; JSON may spell a lone surrogate.
REPLACEMENT = "\ufffd"
DAMAGED = re.compile(f"[{REPLACEMENT}\ud800-\udfff]")

_CARRIAGE_RETURN = re.compile(r"\r(?!\n)")
# What a model thought before its answer.
_THOUGHT = re.compile(
    r"\s*<(?:(think|thinking|thought|reasoning)>.*?</\1>|\|begin_of_thought\|>.*?"
    r"<\|end_of_thought\|>)|\A(?:(?!<think).)*</think(?:ing)?>|<\|(?:begin|end)_of_solution\|>",
    re.DOTALL,
)


class Line(NamedTuple):
    """A line without its line end; only the beginning of a line that is too long (`is_cut`)."""

    number: int
    text: str
    is_cut: bool


@dataclasses.dataclass(frozen=True, eq=False)
class DialogueFile:
    """A file that is read as dialogues.

    Args:
        path: the file, compressed or not.
        encoding: the codec of its text.
        report: counts what is skipped and repaired.
        layout: the user's names of columns.
        mendings: applied to every turn.
        progress: called with the number of bytes that were read since the last call.
    """

    path: Path
    _: dataclasses.KW_ONLY
    encoding: str
    report: ReadingReport
    layout: Layout = dataclasses.field(default_factory=Layout)
    mendings: Sequence[Mending] = ()
    progress: Progress = lambda _: None

    def lines(self, most_characters: int = MAX_LINE_CHARACTERS) -> Iterator[Line]:
        """Yields every line, also lines that are cut."""
        self.report.num_files += 1
        for line in read_lines(self.path, self.encoding, self.progress, most_characters):
            self.report.num_lines += 1
            yield line

    def usable_lines(
        self, most_characters: int = MAX_LINE_CHARACTERS, *, counts_blank: bool = True
    ) -> Iterator[Line]:
        """Yields the lines that are whole and not blank; counts the others as skipped."""
        for line in self.lines(most_characters):
            if line.is_cut:
                self.skip(TOO_LONG, line)
            elif line.text.strip():
                yield line
            elif counts_blank:
                self.skip(BLANK_LINE, line)

    @functools.cached_property
    def sample(self) -> list[str]:
        """The first lines that are whole and not blank, without counting."""
        found: list[str] = []
        most = MAX_RECORD_CHARACTERS
        with closing(read_lines(self.path, self.encoding, most_characters=most)) as lines:
            usable = (line.text for line in lines if not line.is_cut and line.text.strip())
            for text in islice(usable, NUM_SAMPLE_LINES):
                found.append(text)
                if sum(map(len, found)) > SAMPLE_CHARACTERS:
                    break
        return found

    def turn(self, text: str, line: Line) -> str:
        """Returns the stripped text of a turn; empty, and counted as skipped, if it is unusable.

        A few bytes that did not decode, such as half of a character, are removed.
        """
        if "<" in text and ("</think" in text or text.lstrip().startswith("<")):
            said = _THOUGHT.sub("", text)
            if said != text:
                self.report.repair(THOUGHT, self._place(line))
                text = said
        if "\r" in text and _CARRIAGE_RETURN.search(text.strip()):
            self.report.note(f"{self.path}: carriage returns within turns end no line there")
        if self.mendings:
            text = DAMAGED.sub(REPLACEMENT, text)  # A library may refuse a lone surrogate.
        for mending in self.mendings if text.strip() else ():
            mended = mending.mend(text)
            if mended != text:
                self.report.repair(mending.name, self._place(line))
                text = mended
        is_damaged = DAMAGED.search(text) is not None
        flaw = TOO_LONG if line.is_cut else _flaw(text, is_damaged=is_damaged)
        if flaw:
            self.skip(flaw, line)
            return ""
        if is_damaged:
            self.report.repair(UNDECODED, self._place(line))
            text = DAMAGED.sub("", text)
        return text.strip()

    def dialogue(self, turns: Sequence[str] | None, line: Line, flaw: str) -> Iterator[Dialogue]:
        """Yields the dialogue of a line; without turns the line is skipped for its flaw."""
        if turns:
            # An answer at the beginning has no question; no turn of the file is blank there.
            no_question = isinstance(turns, Turns) and turns.has_roles and turns[0] == ""
            texts = [*[""] * no_question, *(self.turn(turn, line) for turn in turns[no_question:])]
            yield turns.with_texts(texts) if isinstance(turns, Turns) else texts
        else:
            self.skip(flaw, line)

    def skip(self, reason: str, line: Line) -> None:
        """Counts an item of the line as skipped."""
        self.report.skip(reason, self._place(line))

    def gather(self, turns: Iterable[str | None]) -> Iterator[Dialogue]:
        """Yields the turns between one None and the next as a dialogue.

        A dialogue that is too long is cut after an even number of turns, so that question and
        answer stay together.
        """
        dialogue: Dialogue = []
        num_characters = 0
        for turn in turns:
            if turn is not None:
                dialogue.append(turn)
                num_characters += len(turn)
                is_long = num_characters >= MAX_DIALOGUE_CHARACTERS
                if len(dialogue) % 2 or not (is_long or len(dialogue) >= MAX_DIALOGUE_TURNS):
                    continue
                self.report.repair("dialogues cut because of their length", str(self.path))
            if dialogue:
                yield dialogue
            dialogue, num_characters = [], 0
        if dialogue:
            yield dialogue

    def _place(self, line: Line) -> str:
        return f"{self.path}:{line.number}"


def read_lines(
    path: Path,
    encoding: str,
    progress: Progress = lambda _: None,
    most_characters: int = MAX_LINE_CHARACTERS,
) -> Generator[Line, None, None]:
    """Yields the decoded lines of a file in bounded memory, however long they are.

    A line ends at a line feed and nowhere else, in a file that begins without any at a carriage
    return, and is cut after `most_characters`. A carriage return before its end and byte order
    marks are removed.

    Raises:
        ValueError: the file cannot be read or decoded at all, or its compression is damaged.
    """
    number, rest, is_cut = 1, "", False
    is_old: bool | None = None  # Whether carriage returns end its lines.
    for text in decoded(path, encoding, progress):
        is_old = "\r" in text.rstrip("\r") and "\n" not in text if is_old is None else is_old
        text = text.replace("\r", "\n") if is_old else text
        more, *lines = text.split("\n")
        rest += more  # In place: of a long line the beginning is not copied again and again.
        for line in lines:
            yield _line(number, rest, is_cut, most_characters)
            number, rest, is_cut = number + 1, line, False
        if len(rest) > most_characters:
            rest, is_cut = rest[:most_characters], True
    if rest:
        yield _line(number, rest, is_cut, most_characters)


def check_encoding(encoding: str) -> None:
    """Raises ValueError unless Python knows the codec and it decodes text."""
    try:
        b"a".decode(encoding, "replace")
        codecs.getincrementaldecoder(encoding)(errors="replace")
    except (LookupError, ValueError) as error:
        raise ValueError(
            "encoding must be the name of a text codec, such as utf-8, gb18030 or utf-16. "
            f"Received {encoding!r}."
        ) from error


def _line(number: int, text: str, is_cut: bool, most_characters: int) -> Line:
    if len(text) > most_characters:
        text, is_cut = text[:most_characters], True
    return Line(number, text.lstrip("\ufeff").removesuffix("\r"), is_cut)


def _flaw(text: str, *, is_damaged: bool) -> str | None:
    """Returns why a turn is unusable, or None."""
    if len(text) > MAX_LINE_CHARACTERS:
        return TOO_LONG
    if not text or text.isspace():
        return BLANK_TURN
    if "\0" in text:
        return NUL
    # One damaged character is accepted in any turn, more only up to one in ten.
    if is_damaged and len(DAMAGED.findall(text)) > max(1, len(text) // 10):
        return UNDECODED
    return None if any(map(str.isalnum, text)) else NO_LETTER

"""ParlAI's text, such as Persona-Chat: a number begins each line, and 1 begins a dialogue."""

from __future__ import annotations

import re
from collections.abc import Iterator

from towers.data.reading.dialogue_file import Dialogue, DialogueFile

FORM = re.compile(r"(\d{1,4}) (\S.*)")
PERSONA = re.compile(r"(?:your|partner's) persona:.*")


def fits(file: DialogueFile) -> bool:
    """Returns whether the first lines are numbered from 1 on, again and again."""
    last, has_turns = 0, False
    for line in file.sample:
        match = FORM.fullmatch(line)
        if match is None or int(match[1]) not in (1, last + 1):
            return False
        last, has_turns = int(match[1]), has_turns or "\t" in line
    return has_turns


def read(file: DialogueFile) -> Iterator[Dialogue]:
    """Yields the dialogues; personas, rewards and candidates are left out."""
    return file.gather(_turns(file))


def _turns(file: DialogueFile) -> Iterator[str | None]:
    last = 0
    for line in file.usable_lines():
        match = FORM.fullmatch(line.text)
        if match is None:
            file.skip("lines that do not begin with a number", line)
            continue
        if int(match[1]) <= last:
            yield None
        last = int(match[1])
        said, *others = match[2].split("\t")
        if PERSONA.fullmatch(said):
            file.skip("lines of a persona", line)
        elif not others:
            file.skip("lines without an answer", line)
        else:
            yield file.turn(said, line)
            yield file.turn(others[0], line)
            if any(other.strip() for other in others[1:]):
                file.report.repair("lines without their rewards and candidates", f"{file.path}")

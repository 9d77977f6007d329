"""JSON Lines with a dialogue on each line: a question with its answer, or a list of turns."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from towers.data.reading.dialogue_file import (
    MAX_RECORD_CHARACTERS,
    Dialogue,
    DialogueFile,
)
from towers.data.reading.records import not_a_dialogue, turns_of


def looks(line: str) -> bool:
    """Returns whether the line could belong to such a file."""
    return isinstance(parsed(line), dict | list)


def read(file: DialogueFile) -> Iterator[Dialogue]:
    """Yields a dialogue for each line, a record as `turns_of` takes it."""
    for line in file.usable_lines(MAX_RECORD_CHARACTERS):
        value = parsed(line.text)
        turns = turns_of(value, file.columns)
        if turns:
            yield [file.turn(turn, line) for turn in turns]
        else:
            what = (
                "that are not JSON"
                if value is None
                else f"whose JSON {not_a_dialogue(file.columns)}"
            )
            file.skip(f"lines {what}", line)


def parsed(text: str) -> Any:
    """Returns the value, or None where the text is not JSON."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None

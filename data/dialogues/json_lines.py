"""JSON Lines with a dialogue on each line: a question with its answer, or a list of turns."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from towers.data.dialogues.dialogue_file import Dialogue, DialogueFile

LIST_KEYS = ("turns", "dialogue")


def looks(line: str) -> bool:
    """Returns whether the line could belong to such a file."""
    return isinstance(_parsed(line), dict | list)


def read(file: DialogueFile) -> Iterator[Dialogue]:
    """Yields a dialogue for each line.

    A line is `{"question": ..., "answer": ...}`, a list of turns, or `{"turns": [...]}` or
    `{"dialogue": [...]}`; a turn is a string or an object with `text`.
    """
    for line in file.usable_lines():
        value = _parsed(line.text)
        turns = _turns_in(value)
        if turns:
            yield [file.turn(turn, line) for turn in turns]
        else:
            what = "that are not JSON" if value is None else "whose JSON is not a dialogue"
            file.skip(f"lines {what}", line)


def _parsed(text: str) -> Any:
    """Returns the value, or None where the text is not JSON."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _turns_in(value: Any) -> list[str] | None:
    """Returns the texts of the turns, or None if some are missing."""
    if isinstance(value, dict):
        lists = [value[key] for key in LIST_KEYS if key in value]
        value = lists[0] if lists else [value.get("question"), value.get("answer")]
    if not isinstance(value, list):
        return None
    turns = [turn.get("text") if isinstance(turn, dict) else turn for turn in value]
    texts = [turn for turn in turns if isinstance(turn, str)]
    return texts if len(texts) == len(turns) else None

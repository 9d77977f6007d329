"""JSON: a dialogue on each line, or one array of dialogues, as ShareGPT's exports are."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from towers.data.reading.dialogue_file import (
    MAX_RECORD_CHARACTERS,
    Dialogue,
    DialogueFile,
    Line,
)
from towers.data.reading.records import not_a_dialogue, turns_of

_BETWEEN = re.compile(r"[\s,]*")


def looks(line: str) -> bool:
    """Returns whether the line could belong to such a file."""
    return isinstance(parsed(line), dict | list)


def read(file: DialogueFile) -> Iterator[Dialogue]:
    """Yields a dialogue for each line, a record as `turns_of` takes it."""
    for line in file.usable_lines(MAX_RECORD_CHARACTERS):
        value = parsed(line.text)
        flaw = (
            "that are not JSON" if value is None else f"whose JSON {not_a_dialogue(file.columns)}"
        )
        yield from file.dialogue(turns_of(value, file.columns), line, f"lines {flaw}")


def fits(file: DialogueFile) -> bool:
    """Returns whether the file begins like an array of records, and not like one list of turns."""
    first = file.beginning().lstrip("\ufeff \t\r\n")
    if not re.match(r"\[\s*[\[{]", first):
        return False
    whole = parsed(first.partition("\n")[0])
    return whole is None or (
        isinstance(whole, list) and any(turns_of(record, file.columns) for record in whole)
    )


def read_array(file: DialogueFile) -> Iterator[Dialogue]:
    """Yields a dialogue for each record of the array, as `turns_of` takes it.

    Raises:
        ValueError: the file is no array of records; the message names the line.
    """
    file.report.num_files += 1
    for number, record in _records(file):
        flaw = f"records whose JSON {not_a_dialogue(file.columns)}"
        yield from file.dialogue(turns_of(record, file.columns), Line(number, "", False), flaw)


def _records(file: DialogueFile) -> Iterator[tuple[int, Any]]:
    """Yields (number of its first line, record) for each record."""
    decode = json.JSONDecoder().raw_decode
    buffer, number, begun = "", 1, False
    for chunk in file.chunks():
        file.report.num_lines += chunk.count("\n")
        buffer += chunk
        index = 0
        while True:
            index = _BETWEEN.match(buffer, index).end()  # type: ignore[union-attr]
            if not begun and buffer[index : index + 1] in ("[", "\ufeff"):
                begun = buffer[index] == "["
                number += buffer.count("\n", 0, index)
                buffer, index = buffer[index + 1 :], 0
                continue
            if buffer[index : index + 1] not in ("{", "["):
                break
            try:
                record, end = decode(buffer, index)
            except (ValueError, RecursionError):
                break
            yield number + buffer.count("\n", 0, index), record
            number += buffer.count("\n", 0, end)
            buffer, index = buffer[end:], 0
        rest = buffer[index:]
        if len(rest) > MAX_RECORD_CHARACTERS or (rest and (not begun or rest[0] not in "{[]")):
            break
    rest = _BETWEEN.sub("", buffer, count=1)
    if not begun or not rest.startswith("]"):
        number += buffer.count("\n", 0, len(buffer) - len(rest))
        raise ValueError(
            f"{file.path}:{number}: expected a JSON array of dialogues, each an object or a list, "
            f"found {rest[:40]!r}{'' if rest else ' (the end of the file)'}."
        )


def parsed(text: str) -> Any:
    """Returns the value, or None where the text is not JSON."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None

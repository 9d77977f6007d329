"""One JSON array of dialogues, as ShareGPT's exports are, read a record at a time."""

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
from towers.data.reading.json_lines import parsed
from towers.data.reading.records import not_a_dialogue, turns_of

_BETWEEN = re.compile(r"[\s,]*")


def fits(file: DialogueFile) -> bool:
    """Returns whether the file begins like an array of records, and not like one list of turns."""
    first = file.beginning().lstrip("\ufeff \t\r\n")
    if not re.match(r"\[\s*[\[{]", first):
        return False
    whole = parsed(first.partition("\n")[0])
    return whole is None or (
        isinstance(whole, list) and any(turns_of(record, file.columns) for record in whole)
    )


def read(file: DialogueFile) -> Iterator[Dialogue]:
    """Yields a dialogue for each record of the array, as `turns_of` takes it.

    Raises:
        ValueError: the file is no array of records; the message names the line.
    """
    file.report.num_files += 1
    for number, record in _records(file):
        line = Line(number, "", False)
        turns = turns_of(record, file.columns)
        if turns:
            yield [file.turn(turn, line) for turn in turns]
        else:
            file.skip(f"records whose JSON {not_a_dialogue(file.columns)}", line)


def _records(file: DialogueFile) -> Iterator[tuple[int, Any]]:
    """Yields (number of its first line, record) for each record."""
    decode = json.JSONDecoder().raw_decode
    buffer, number, begun = "", 1, False
    for chunk in file.chunks():
        file.report.num_lines += chunk.count("\n")
        buffer += chunk
        place = 0
        while True:
            place = _BETWEEN.match(buffer, place).end()  # type: ignore[union-attr]
            if not begun and buffer[place : place + 1] in ("[", "\ufeff"):
                begun = buffer[place] == "["
                number += buffer.count("\n", 0, place)
                buffer, place = buffer[place + 1 :], 0
                continue
            if buffer[place : place + 1] not in ("{", "["):
                break
            try:
                record, end = decode(buffer, place)
            except (ValueError, RecursionError):
                break
            yield number + buffer.count("\n", 0, place), record
            number += buffer.count("\n", 0, end)
            buffer, place = buffer[end:], 0
        rest = buffer[place:]
        if len(rest) > MAX_RECORD_CHARACTERS or (rest and (not begun or rest[0] not in "{[]")):
            break
    rest = _BETWEEN.sub("", buffer, count=1)
    if not begun or not rest.startswith("]"):
        number += buffer.count("\n", 0, len(buffer) - len(rest))
        raise ValueError(
            f"{file.path}:{number}: expected a JSON array of dialogues, each an object or a list, "
            f"found {rest[:40]!r}{'' if rest else ' (the end of the file)'}."
        )

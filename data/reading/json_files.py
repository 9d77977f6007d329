"""JSON: a record on each line, an array of records, records one after the other, or one object."""

from __future__ import annotations

import ast
import contextlib
import itertools
import json
import re
import warnings
from collections.abc import Iterator
from typing import Any

from towers.data.compression import decoded
from towers.data.reading.chats import SHOWN_KEYS, dialogues_of, parts_of
from towers.data.reading.dialogue_file import MAX_RECORD_CHARACTERS, Dialogue, DialogueFile, Line
from towers.data.reading.message_records import message_of
from towers.data.reading.records import not_a_dialogue, turns_of

MAX_OBJECT_CHARACTERS = 1 << 30  # Of an export that is one object.
MAX_PYTHON_CHARACTERS = 1 << 20  # Of a line that is no JSON; its syntax tree is large.
_BETWEEN = re.compile(r"[\s,]*")
_SIDE_BY_SIDE = re.compile(
    r"(?<=['\"])\s+['\"]"
)  # Texts that Python would join, as NumPy prints them.


def looks(line: str) -> bool:
    """Returns whether the line could belong to such a file."""
    return isinstance(_value_of(line), dict | list)


def read(file: DialogueFile) -> Iterator[Dialogue]:
    """Yields the dialogues of the records, one on each line."""

    def records() -> Iterator[tuple[Line, Any]]:
        for line in file.usable_lines(MAX_RECORD_CHARACTERS):
            value = _value_of(line.text)
            if value is None:
                file.skip("lines that are not JSON", line)
            else:
                yield Line(line.number, "", False), value

    return dialogues_of(records(), file, f"lines whose JSON {not_a_dialogue(file.layout)}")


def fits(file: DialogueFile) -> bool:
    """Returns whether the file begins with an array of records, or with a record of many lines."""
    with contextlib.closing(decoded(file.path, file.encoding)) as chunks:
        first = next(chunks, "").lstrip("\ufeff \t\r\n")
    if not re.match(r"\[\s*[\[{]|\{\s*[\"}]", first):
        return False
    whole = parsed(first.partition("\n")[0])
    if whole is None:
        return True
    records = whole if isinstance(whole, list) else itertools.chain(*parts_of(whole))

    def is_read(record: Any) -> bool:
        return bool(turns_of(record, file.layout) or message_of(record, file.layout))

    is_one = isinstance(whole, dict) and is_read(whole)
    return not is_one and any(map(is_read, records))


def read_array(file: DialogueFile) -> Iterator[Dialogue]:
    """Yields the dialogues of an array, of records that follow each other, or of one object.

    Raises:
        ValueError: the file is no such thing; the message names the line.
    """
    file.report.num_files += 1
    keys: list[str] = []

    def records() -> Iterator[tuple[Line, Any]]:
        for number, record in _records(file):
            if not keys and isinstance(record, dict):
                keys.extend(record)
            yield Line(number, "", False), record

    flaw = f"records whose JSON {not_a_dialogue(file.layout)}"
    found = False
    for dialogue in dialogues_of(records(), file, flaw):
        found = True
        yield dialogue
    if not found and keys:
        shown = ", ".join(map(repr, keys[:SHOWN_KEYS]))
        raise ValueError(
            f"{file.path}: expected records with messages, or with question and answer, found an "
            f"object with the keys {shown}. Name the keys of question and answer with --set "
            "columns=NAME,NAME, or those of messages with --set sender=NAME --set text=NAME."
        )


def _records(file: DialogueFile) -> Iterator[tuple[int, Any]]:
    """Yields (number of its first line, record) for each; ValueError if the file breaks off."""
    decode = json.JSONDecoder().raw_decode
    buffer, number, opened = "", 1, ""
    limit, tried, last = MAX_RECORD_CHARACTERS, 0, "\n"
    chunks = decoded(file.path, file.encoding, file.progress)
    for chunk in itertools.chain(chunks, [""]):  # At the end all that is left is tried.
        before, last = last, chunk[-1:] or last
        file.report.num_lines += chunk.count("\n") + (before == "\n") - (last == "\n")
        buffer += chunk
        if chunk and len(buffer) < 2 * tried:
            continue  # Half a record: what is tried again and again would take squared time.
        index = 0
        while True:
            index = _BETWEEN.match(buffer, index).end()  # type: ignore[union-attr]
            if not opened and buffer[index : index + 1] in ("[", "{", "\ufeff"):
                opened = buffer[index].strip("\ufeff")
                number += buffer.count("\n", 0, index)
                buffer, index = buffer[index + (opened != "{") :], 0
                limit = MAX_OBJECT_CHARACTERS if opened == "{" else limit
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
        tried = len(rest) if opened == "{" else 0
        if len(rest) > limit or (rest and (not opened or rest[0] not in "{[]")):
            break
    rest = _BETWEEN.sub("", buffer, count=1)
    is_whole = rest.startswith("]") if opened == "[" else opened == "{" and not rest
    if not is_whole:
        number += buffer.count("\n", 0, len(buffer) - len(rest))
        raise ValueError(
            f"{file.path}:{number}: expected a JSON array of dialogues, each an object or a list, "
            f"found {rest[:40]!r}{'' if rest else ' (the end of the file)'}."
        )


def _value_of(line: str) -> Any:
    """Returns the value of a line of JSON, or of one as Python prints a dictionary or a list."""
    value = parsed(line)
    is_python = value is None and re.match(r"\s*[\[{]\s*[\[{'\"]", line) is not None
    if not is_python or len(line) > MAX_PYTHON_CHARACTERS or _SIDE_BY_SIDE.search(line):
        return value
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Of backslashes in its texts.
            found = ast.literal_eval(line.strip())
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return None
    return found if isinstance(found, dict | list) else None


def unpacked(field: Any) -> Any:
    """Returns a field of a table, of a list in JSON the list."""
    return (isinstance(field, str) and field.startswith("[") and parsed(field)) or field


def parsed(text: str) -> Any:
    """Returns the value, or None where the text is not JSON."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None

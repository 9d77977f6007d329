"""The Cornell movie dialogs: `movie_conversations.txt` names lines of `movie_lines.txt`.

Danescu-Niculescu-Mizil and Lee 2011, "Chameleons in imagined conversations". Columns are
separated by ` +++$+++ `. The last column of a line is its text; the last column of a conversation
lists its lines, such as `['L194', 'L195']`.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator
from pathlib import Path

from towers.data.reading.dialogue_file import Dialogue, DialogueFile

SEPARATOR = "+++$+++"
CONVERSATIONS, LINES = "movie_conversations.txt", "movie_lines.txt"


def looks(line: str) -> bool:
    """Returns whether the line could belong to such a file."""
    return SEPARATOR in line


def find_conversations(path: Path) -> Path | None:
    """Returns the conversations file in a folder, or beside a lines file; None without one."""
    if path.name.startswith(LINES):
        path = path.parent
    candidates = [path / name for name in (CONVERSATIONS, CONVERSATIONS + ".gz")]
    return next((candidate for candidate in candidates if candidate.is_file()), None)


def read(file: DialogueFile) -> Iterator[Dialogue]:
    """Yields the conversations of a file; the texts of all lines stay in memory.

    Raises:
        ValueError: the file is no conversations file, or has no lines file beside it.
    """
    texts = _texts(_lines_beside(file))
    for line in file.usable_lines():
        names = re.findall(r"['\"]([^'\"]+)['\"]", line.text.rpartition(SEPARATOR)[2])
        for name in names:
            if name not in texts:
                file.skip("turns that movie_lines.txt does not have", line)
        if names:
            yield [texts.get(name, "") for name in names]
        else:
            file.skip("lines that name no turns", line)


def _lines_beside(file: DialogueFile) -> DialogueFile:
    name = file.path.name
    path = file.path.with_name(name.replace("conversations", "lines"))
    if "conversations" not in name or not path.is_file():
        raise ValueError(
            f"{file.path}: expected {CONVERSATIONS} with {LINES} beside it, found no such pair. "
            "Give the folder that has both."
        )
    return dataclasses.replace(file, path=path)


def _texts(file: DialogueFile) -> dict[str, str]:
    """Returns {name of a line: its text}."""
    texts = {}
    for line in file.usable_lines():
        columns = line.text.split(SEPARATOR, 4)
        if len(columns) == 5:
            texts[columns[0].strip()] = file.turn(columns[4], line)
        else:
            file.skip(f"lines of other than 5 columns separated by {SEPARATOR}", line)
    return texts

"""The Cornell movie dialogs: `movie_conversations.txt` names lines of `movie_lines.txt`.

Danescu-Niculescu-Mizil and Lee 2011, "Chameleons in imagined conversations". Columns are parted
by ` +++$+++ `; the last one of a line is its text, that of a conversation `['L194', 'L195']`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from towers.data.dialogues.source import Dialogue, Source

SEPARATOR = "+++$+++"
CONVERSATIONS, LINES = "movie_conversations.txt", "movie_lines.txt"


def looks(line: str) -> bool:
    """Returns whether the line could be one of such a file."""
    return SEPARATOR in line


def find_conversations(path: Path) -> Path | None:
    """Returns the file of conversations in a folder, or beside a file of lines, or None."""
    if path.name.startswith(LINES):
        path = path.parent
    candidates = [path / name for name in (CONVERSATIONS, CONVERSATIONS + ".gz")]
    return next((candidate for candidate in candidates if candidate.is_file()), None)


def read(source: Source) -> Iterator[Dialogue]:
    """Yields the conversations of a file; the texts of all lines are held in memory.

    Raises:
        ValueError: the file is not one of conversations, or that of the lines is not beside it.
    """
    texts = _texts(_lines_beside(source))
    for line in source.usable_lines():
        names = re.findall(r"['\"]([^'\"]+)['\"]", line.text.rpartition(SEPARATOR)[2])
        for name in names:
            if name not in texts:
                source.skip("turns that movie_lines.txt does not have", line)
        if names:
            yield [texts.get(name, "") for name in names]
        else:
            source.skip("lines that name no turns", line)


def _lines_beside(source: Source) -> Source:
    name = source.path.name
    path = source.path.with_name(name.replace("conversations", "lines"))
    if "conversations" not in name or not path.is_file():
        raise ValueError(
            f"{source.path}: expected {CONVERSATIONS} with {LINES} beside it, found no such pair. "
            "Give the folder that has both."
        )
    return Source(path, encoding=source.encoding, report=source.report)


def _texts(source: Source) -> dict[str, str]:
    """Returns {name of a line: its text}."""
    texts = {}
    for line in source.usable_lines():
        columns = line.text.split(SEPARATOR, 4)
        if len(columns) == 5:
            texts[columns[0].strip()] = source.turn(columns[4], line)
        else:
            source.skip(f"lines of other than 5 columns parted by {SEPARATOR}", line)
    return texts

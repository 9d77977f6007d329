"""Text with a dialogue on each line, its turns separated by tabs: question TAB answer."""

from __future__ import annotations

from collections.abc import Iterator

from towers.data.reading.dialogue_file import Dialogue, DialogueFile


def looks(line: str) -> bool:
    """Returns whether the line could belong to such a file."""
    return "\t" in line.strip()


def read(file: DialogueFile) -> Iterator[Dialogue]:
    """Yields a dialogue for each line, a turn for each column."""
    for line in file.usable_lines():
        columns = line.text.split("\t")
        while len(columns) > 2 and not columns[-1].strip():
            columns.pop()  # Tabs that only end the line.
        turns = columns if len(columns) > 1 else None
        yield from file.dialogue(turns, line, "lines without a tab")

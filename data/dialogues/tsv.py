"""Text with a dialogue on each line, its turns parted by tabs: question TAB answer."""

from __future__ import annotations

from collections.abc import Iterator

from towers.data.dialogues.source import Dialogue, Source


def looks(line: str) -> bool:
    """Returns whether the line could be one of such a file."""
    return "\t" in line.strip()


def read(source: Source) -> Iterator[Dialogue]:
    """Yields a dialogue for each line; more than two columns are its further turns."""
    for line in source.usable_lines():
        columns = line.text.split("\t")
        while len(columns) > 2 and not columns[-1].strip():
            columns.pop()  # Tabs that only end the line.
        if len(columns) > 1:
            yield [source.turn(column, line) for column in columns]
        else:
            source.skip("lines without a tab", line)

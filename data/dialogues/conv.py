"""The `.conv` files of the xiaohuangji and dgk corpora: `E` opens a dialogue, `M text` is a turn.

Published at github.com/candlewill/Dialog_Corpus and github.com/aceimnorstuvwxz/dgk_lost_conv.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from towers.data.dialogues.source import Dialogue, Source

PARTED_MIN_LETTERS = 6  # Shorter turns may be a single token.
PARTED_MIN_TURNS = 5
PARTED_SHARE = 0.9


def looks(line: str) -> bool:
    """Returns whether the line could be one of such a file."""
    return line.strip() == "E" or _is_turn(line)


def read(source: Source) -> Iterator[Dialogue]:
    """Yields the dialogues; a turn that cannot be used is an empty string in its place.

    In the variants whose tokens are parted by a slash (`M 你/好/吗`), spaces part them instead, as
    in the other formats. They are told by their long turns, nearly all of which have a slash:
    in ordinary text one turn in some thousands has.
    """
    is_parted = _is_parted(source.sample())
    if is_parted:
        source.report.note(f"{source.path}: slashes part the tokens; read as spaces")
    return source.gather(_turns(source, is_parted=is_parted))


def _turns(source: Source, *, is_parted: bool) -> Iterator[str | None]:
    for line in source.lines():
        if line.text.strip() == "E":
            yield None
        elif _is_turn(line.text):
            text = line.text[1:]
            yield source.turn(text.replace("/", " ") if is_parted else text, line)
        else:
            source.skip("lines that are neither `E` nor `M text`", line)


def _is_turn(line: str) -> bool:
    return re.match(r"M(?!\S)", line) is not None


def _is_parted(lines: list[str]) -> bool:
    turns = [line[1:] for line in lines if _is_turn(line)]
    long = [turn for turn in turns if sum(map(str.isalnum, turn)) >= PARTED_MIN_LETTERS]
    num_parted = sum("/" in turn.strip() for turn in long)
    return len(long) >= PARTED_MIN_TURNS and num_parted >= PARTED_SHARE * len(long)

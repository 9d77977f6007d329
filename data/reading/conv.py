"""The `.conv` files of the xiaohuangji and dgk corpora: `E` opens a dialogue, `M text` is a turn.

Published at github.com/candlewill/Dialog_Corpus and github.com/aceimnorstuvwxz/dgk_lost_conv.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from towers.data.reading.dialogue_file import Dialogue, DialogueFile

SLASH_MIN_LETTERS = 6  # Shorter turns may be a single token.
SLASH_MIN_TURNS = 5
SLASH_FRACTION = 0.9
_TURN = re.compile(r"M(?!\S)")


def looks(line: str) -> bool:
    """Returns whether the line could belong to such a file."""
    return line.strip() == "E" or _is_turn(line)


def read(file: DialogueFile) -> Iterator[Dialogue]:
    """Yields the dialogues; an unusable turn is an empty string in its place.

    Some of these files separate tokens by slashes (`M 你/好/吗`), which are read as spaces, as in
    the other formats. Such a file is recognised by its long turns, nearly all of which have a
    slash; in ordinary text one turn in some thousands has.
    """
    has_slashes = _has_slashes(file.sample)
    if has_slashes:
        file.report.note(f"{file.path}: slashes separate the tokens; read as spaces")
    return file.gather(_turns(file, has_slashes=has_slashes))


def _turns(file: DialogueFile, *, has_slashes: bool) -> Iterator[str | None]:
    for line in file.lines():
        if _is_turn(line.text):
            text = line.text[1:]
            yield file.turn(text.replace("/", " ") if has_slashes else text, line)
        elif line.text.strip() == "E":
            yield None
        else:
            file.skip("lines that are neither `E` nor `M text`", line)


def _is_turn(line: str) -> bool:
    return _TURN.match(line) is not None


def _has_slashes(lines: list[str]) -> bool:
    turns = [line[1:] for line in lines if _is_turn(line)]
    long = [turn for turn in turns if sum(map(str.isalnum, turn)) >= SLASH_MIN_LETTERS]
    num_with_slash = sum("/" in turn.strip() for turn in long)
    return len(long) >= SLASH_MIN_TURNS and num_with_slash >= SLASH_FRACTION * len(long)

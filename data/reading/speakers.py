"""Files with one dialogue each, a line `speaker|text|dialogue act` for each utterance.

The Switchboard Dialogue Act Corpus has this format at github.com/NathanDuran/Switchboard-Corpus.
"""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Iterator

from towers.data.reading.dialogue_file import MAX_LINE_CHARACTERS, Dialogue, DialogueFile, Line

FORM = re.compile(r"([^|]{1,100})\|(.*)\|[^|]*")
Utterance = tuple[str, str, Line]  # Speaker, text and line.


def looks(line: str) -> bool:
    """Returns whether the line could belong to such a file."""
    return FORM.fullmatch(line) is not None


def read(file: DialogueFile) -> Iterator[Dialogue]:
    """Yields the one dialogue; consecutive lines of a speaker are one turn."""
    return file.gather(_turns(file))


def _turns(file: DialogueFile) -> Iterator[str]:
    for _, utterances in itertools.groupby(_utterances(file), key=lambda one: one[0]):
        _, text, line = functools.reduce(_joined, utterances)
        yield file.turn(text, line)


def _joined(one: Utterance, other: Utterance) -> Utterance:
    """Returns two of a speaker as one; a text that is too long already does not grow."""
    speaker, text, line = one
    return one if len(text) > MAX_LINE_CHARACTERS else (speaker, f"{text} {other[1]}", line)


def _utterances(file: DialogueFile) -> Iterator[Utterance]:
    for line in file.usable_lines():
        match = FORM.fullmatch(line.text)
        if match:
            yield match[1].strip(), match[2].strip(), line
        else:
            file.skip("lines that are not `speaker|text|act`", line)

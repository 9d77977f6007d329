"""Files with one dialogue each, a line `speaker|text|dialogue act` for each utterance.

The Switchboard Dialogue Act Corpus has this format at github.com/NathanDuran/Switchboard-Corpus.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import groupby
from operator import itemgetter

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
    for _, utterances in groupby(_utterances(file), key=itemgetter(0)):
        yield file.turn(*_joined(utterances))


def _utterances(file: DialogueFile) -> Iterator[Utterance]:
    for line in file.usable_lines():
        match = FORM.fullmatch(line.text)
        if match:
            yield match[1].strip(), match[2].strip(), line
        else:
            file.skip("lines that are not `speaker|text|act`", line)


def _joined(utterances: Iterator[Utterance]) -> tuple[str, Line]:
    """Returns the joined text and its first line; a text that is too long already does not grow."""
    _, text, first_line = next(utterances)
    texts, num_characters = [text], len(text)
    for _, more, _ in utterances:
        if num_characters <= MAX_LINE_CHARACTERS:
            texts.append(more)
            num_characters += 1 + len(more)
    return " ".join(texts), first_line

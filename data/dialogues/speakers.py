"""Files with one dialogue each, a line `speaker|text|dialogue act` for each utterance.

This is how the Switchboard Dialogue Act Corpus is published for learning
(github.com/NathanDuran/Switchboard-Corpus).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import groupby
from operator import itemgetter

from towers.data.dialogues.source import MAX_LINE_CHARACTERS, Dialogue, Line, Source

FORM = re.compile(r"([^|]{1,100})\|(.*)\|[^|]*")

Utterance = tuple[str, str, Line]  # Speaker, text and where it is.


def looks(line: str) -> bool:
    """Returns whether the line could be one of such a file."""
    return FORM.fullmatch(line) is not None


def read(source: Source) -> Iterator[Dialogue]:
    """Yields the one dialogue; consecutive lines of a speaker are one turn."""
    return source.gather(_turns(source))


def _turns(source: Source) -> Iterator[str]:
    for _, utterances in groupby(_utterances(source), key=itemgetter(0)):
        yield source.turn(*_joined(utterances))


def _utterances(source: Source) -> Iterator[Utterance]:
    for line in source.usable_lines():
        match = FORM.fullmatch(line.text)
        if match:
            yield match[1].strip(), match[2].strip(), line
        else:
            source.skip("lines that are not `speaker|text|act`", line)


def _joined(utterances: Iterator[Utterance]) -> tuple[str, Line]:
    """Returns one text and the first line; once the text is too long, no more is taken in."""
    _, text, first_line = next(utterances)
    texts, num_characters = [text], len(text)
    for _, more, _ in utterances:
        if num_characters <= MAX_LINE_CHARACTERS:
            texts.append(more)
            num_characters += 1 + len(more)
    return " ".join(texts), first_line

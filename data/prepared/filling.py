"""Filling journalled files with tokens, from wherever a killed process left them."""

from __future__ import annotations

import codecs
import itertools
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator

import numpy as np

from towers.data.prepared.chunks import Chunk, TokenisedChunk
from towers.data.prepared.journal import JournalledFiles
from towers.data.prepared.processes import tokenise
from towers.data.text import TextSettings, unmatched_words
from towers.ground.progress import Progress, count_of

_LEAST_LETTERS = 100
_LEAST_FRACTION = 0.3
_MOST_TEXTS = 20_000
_MOST_SCRIPTS = 6
_SHOWN_WORDS = 5


def fill(
    files: JournalledFiles,
    add: Callable[[TokenisedChunk, np.ndarray], None],
    chunks: Iterator[Chunk],
    settings: TextSettings,
    processes: int | None,
    progress: Progress,
    write: Callable[[str], None],
) -> Letters:
    """Tokenises the chunks, in order, but those whose tokens are in the files already.

    The chunks are the same ones in every call. `add` writes the tokens of the next one, whose texts
    have marks, uint8, into the files, whose `state` counts the `chunks`. Returns the letters of the
    texts.
    """
    if files.state["chunks"]:
        number = count_of(files.state["chunks"], "chunk")
        write(f"goes on after {number} of text that an earlier process prepared")
    letters = Letters()
    chunks = letters.of(chunks)
    for _ in range(files.state["chunks"]):
        next(chunks, None)
    progress.restart()
    chunks, same = itertools.tee(chunks)  # It keeps those that processes have.
    texts = (chunk.texts for chunk in chunks)
    for tokenised, chunk in zip(tokenise(texts, settings, processes), same, strict=True):
        add(tokenised, np.array(chunk.marks, np.uint8))
        files.state["chunks"] += 1
        if files.is_due:
            files.save()
    files.save()
    return letters


class Letters:
    """Counts of the letters of the first texts, by script."""

    def __init__(self) -> None:
        self._num_texts = 0
        self._counts: Counter[str] = Counter()

    def of(self, chunks: Iterable[Chunk]) -> Iterator[Chunk]:
        """Yields chunks of texts, and counts the characters of the first texts."""
        for chunk in chunks:
            if self._num_texts < _MOST_TEXTS:
                self._counts.update("".join(chunk.texts[: _MOST_TEXTS - self._num_texts]))
                self._num_texts += len(chunk.texts)
            yield chunk

    def describe(self, language: str | None, encoding: str) -> list[str]:
        """Returns a line about the scripts of the letters; none if there are few.

        It warns if few of them are those of the language, unless that is None. Bytes that are
        UTF-8 are hardly ever another encoding.
        """
        counts: Counter[str] = Counter()
        for character, number in self._counts.items():
            if character.isalpha():
                counts[_script_of(character)] += number
        total = counts.total()
        if total < _LEAST_LETTERS:
            return []
        common = [(name, n) for name, n in counts.most_common(_MOST_SCRIPTS) if n * 100 >= total]
        scripts = ", ".join(f"{n / total:.0%} {name}" for name, n in common)
        of_language = {"zh": counts["Chinese"], "en": counts["Latin"]}
        if language is None or of_language[language] >= _LEAST_FRACTION * total:
            return [f"letters: {scripts}"]
        likely = max(of_language, key=lambda one: of_language[one])
        if of_language[likely] >= _LEAST_FRACTION * total:
            advice = f"give --language {likely}"
        elif codecs.lookup(encoding).name.startswith("utf"):
            advice = "they are kept; without blanks between words, give --set tokenizer=characters"
        else:
            advice = f"the encoding may be another one than {encoding} (--encoding)"
        return [f"warning: the language is {language}, but the letters are {scripts}: {advice}"]


def describe_unmatched(settings: TextSettings) -> list[str]:
    """Returns a line about the words of the user's dictionaries that can never match, if any."""
    if not (settings.dictionary or settings.user_dictionary):
        return []
    words = unmatched_words(settings)
    shown = ", ".join(map(repr, words[:_SHOWN_WORDS]))
    return [f"words of the dictionaries that can never match: {len(words):,} ({shown})"][
        : len(words)
    ]


def _script_of(letter: str) -> str:
    """Returns the name of a letter's script: with what its own name begins.

    >>> _script_of("é"), _script_of("हि"[0]), _script_of("好")
    ('Latin', 'Devanagari', 'Chinese')
    """
    first = unicodedata.name(letter, "other").split()[0].capitalize()
    return {"Cjk": "Chinese", "Fullwidth": "Latin", "Halfwidth": "Katakana"}.get(first, first)

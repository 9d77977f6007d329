"""Whether the letters of a text are those of a language."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from towers.data.prepared.chunks import Chunk
from towers.data.text.normalisation import LANGUAGES

_CHINESE = re.compile("[\u3400-\u4dbf\u4e00-\u9fff\U00020000-\U0003ffff]")
_LATIN = re.compile("[A-Za-z\u00c0-\u024f]")
_LEAST_LETTERS = 100
_LEAST_SHARE = 0.3
_MOST_TEXTS = 20_000


class Letters:
    """Counts of the letters of the first texts, by script."""

    def __init__(self) -> None:
        self._num_texts = self._num_chinese = self._num_latin = self._num_all = 0

    def of(self, chunks: Iterable[Chunk]) -> Iterator[Chunk]:
        """Yields chunks of texts, and counts the letters of the first texts."""
        for chunk in chunks:
            for text in chunk.texts[: _MOST_TEXTS - self._num_texts]:
                self._add(text)
            yield chunk

    def _add(self, text: str) -> None:
        self._num_texts += 1
        self._num_chinese += len(_CHINESE.findall(text))
        self._num_latin += len(_LATIN.findall(text))
        self._num_all += sum(map(str.isalpha, text))

    def misfit(self, language: str) -> str | None:
        """Returns a line if few of the letters are those of the language, otherwise None.

        A few letters tell nothing.

        Args:
            language: zh or en.
        """
        counts = {"zh": self._num_chinese, "en": self._num_latin}
        if self._num_all < _LEAST_LETTERS or counts[language] >= _LEAST_SHARE * self._num_all:
            return None
        shares = {one: counts[one] / self._num_all for one in LANGUAGES}
        likely = max(shares, key=lambda one: shares[one])
        advice = (
            f"give --language {likely}"
            if shares[likely] >= _LEAST_SHARE
            else "the file may have another encoding (--encoding); letters of other scripts are "
            "kept (--set tokenizer=characters), but signs that join them are lost"
        )
        return (
            f"warning: the language is {language}, but {shares['zh']:.0%} of the letters are "
            f"Chinese and {shares['en']:.0%} Latin: {advice}"
        )

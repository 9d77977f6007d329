"""Tokenizers: normalised text to tokens, and tokens back to text."""

from __future__ import annotations

import functools
import re
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

from .detokenising import detokenise_chinese, detokenise_english
from .normalisation import AFTER_APOSTROPHE, WIDE
from .settings import TextSettings
from .subwords import SubwordTokenizer


class Tokenizer(Protocol):
    """From a normalised text (`TextSettings.normalise`) to tokens and back."""

    def tokenize(self, text: str) -> list[str]:
        """Returns the tokens of a normalised text; no token is empty."""

    def detokenise(self, tokens: Sequence[str]) -> str:
        """Returns the text of the tokens."""


def make_tokenizer(settings: TextSettings) -> Tokenizer:
    """Returns the tokenizer that the settings name.

    Raises:
        ValueError: a dictionary or model is missing or has the wrong format, or the library for
            subwords is not installed; the message names it.
    """
    name = settings.chosen_tokenizer
    if name == "jieba":
        return JiebaTokenizer(settings)
    if name == "words":
        return WordTokenizer(settings.language)
    if name == "subwords":
        return SubwordTokenizer(settings.subword_model)
    return CharacterTokenizer() if name == "characters" else SpaceTokenizer(settings)


class CharacterTokenizer:
    """Every character is a token, also a blank."""

    def tokenize(self, text: str) -> list[str]:
        return list(text)

    def detokenise(self, tokens: Sequence[str]) -> str:
        return "".join(tokens)


class SpaceTokenizer:
    """Tokens are separated by blanks."""

    def __init__(self, settings: TextSettings) -> None:
        self.detokenise = " ".join if settings.as_written else _detokeniser(settings.language)

    def tokenize(self, text: str) -> list[str]:
        return text.split()


class WordTokenizer:
    """Words with apostrophes and hyphens, numbers, addresses, and single punctuation marks.

    A Chinese character is a token of its own.
    """

    def __init__(self, language: str) -> None:
        self.detokenise = _detokeniser(language)

    def tokenize(self, text: str) -> list[str]:
        return _WORDS.findall(text)


class JiebaTokenizer:
    """Chinese words by jieba; everything else as in `WordTokenizer`.

    jieba breaks `don't` and `café`, so it only receives runs of Chinese with the plain letters and
    digits next to them (`T恤`, `卡拉OK`). Its own dictionary is read when the first text comes,
    files of the user's at once.
    """

    def __init__(self, settings: TextSettings) -> None:
        self.detokenise = _detokeniser(settings.language)
        files = settings.dictionary, settings.user_dictionary
        self._load = functools.cache(lambda: _load_jieba(*files))
        self._new_words = settings.new_words
        if any(files):
            self._load()

    def tokenize(self, text: str) -> list[str]:
        cut = functools.partial(self._load().cut, HMM=self._new_words)
        tokens: list[str] = []
        for match in _CHINESE_OR_WORDS.finditer(text):
            tokens.extend(cut(match[0]) if match["chinese"] else [match[0]])
        return tokens


def _detokeniser(language: str) -> Callable[[Sequence[str]], str]:
    return detokenise_chinese if language == "zh" else detokenise_english


_WORD = rf"""
    (?:https?://|www\.)[^\s"'()\[\]{{}}{WIDE}]+      # An address.
    | [0-9]+(?:[.,:/][0-9]+)+                        # 1,000, 3.5 or 7:30.
    | (?:[A-Za-z]\.){{2,}}                           # U.S.
    | [^\W{WIDE}]+(?:['&-][^\W{WIDE}]+)*             # don't, well-known, C4.
    | '{AFTER_APOSTROPHE}                            # The 's after another character.
    | \.\.\.
    | \S
"""
_CHINESE = r"[\u3005-\u3007\u3400-\u4dbf\u4e00-\u9fff\U00020000-\U0003ffff]"
# Next to Chinese, and not the beginning of a longer word or number.
_PLAIN = rf"[A-Za-z0-9]+(?!['&-]?[^\W{WIDE}]|[.,:/][0-9])"
_CHINESE_RUN = rf"(?P<chinese>[A-Za-z0-9]*{_CHINESE}(?:{_CHINESE}|{_PLAIN})*)"
_WORDS = re.compile(_WORD, re.VERBOSE | re.IGNORECASE)
_CHINESE_OR_WORDS = re.compile(f"{_CHINESE_RUN} | {_WORD}", re.VERBOSE | re.IGNORECASE)


def _load_jieba(dictionary: str | None, user_dictionary: str | None) -> Any:
    jieba = _import_jieba()
    tokenizer = jieba.Tokenizer()
    frequencies, total = _read_dictionary(Path(dictionary)) if dictionary else _own_dictionary()
    # Set here because jieba's own initialisation loads a cache by marshal that every user of the
    # machine can write. Reading the dictionary takes 0.4 s, the cache 0.5 s.
    tokenizer.FREQ, tokenizer.total, tokenizer.initialized = frequencies, total, True
    if user_dictionary:
        tokenizer.FREQ = dict(frequencies)
        _add_words(tokenizer, Path(user_dictionary))
    return tokenizer


def _import_jieba() -> Any:
    with warnings.catch_warnings():
        # It imports pkg_resources, which setuptools deprecates, and has invalid escapes.
        warnings.simplefilter("ignore")
        import jieba
    return jieba


@functools.cache
def _own_dictionary() -> tuple[dict[str, int], int]:
    """Returns jieba's own dictionary, read once a process; not to be changed."""
    return _read_dictionary(Path(_import_jieba().__file__).with_name("dict.txt"))


def _read_dictionary(path: Path) -> tuple[dict[str, int], int]:
    try:
        with path.open("rb") as file:
            frequencies, total = _import_jieba().Tokenizer().gen_pfdict(file)
    except (OSError, ValueError) as error:
        raise _wrong_dictionary("dictionary", path, error) from error
    if not total or min(frequencies.values()) < 0:
        raise _wrong_dictionary("dictionary", path, "no words, or negative counts")
    return frequencies, total


def _add_words(tokenizer: Any, path: Path) -> None:
    try:
        with path.open("rb") as file:
            tokenizer.load_userdict(file)
    except (OSError, ValueError) as error:
        raise _wrong_dictionary("user_dictionary", path, error) from error


def _wrong_dictionary(name: str, path: Path, found: object) -> ValueError:
    form = "word count" if name == "dictionary" else "word` or `word count"
    return ValueError(
        f"{path}: expected {name} to be a UTF-8 file with `{form}` on each line, found: {found}."
    )

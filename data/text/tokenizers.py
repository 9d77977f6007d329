"""Tokenizers: normalised text to tokens, and tokens back to text.

The case of letters does not change: lower-case tokens give lower-case text.
"""

from __future__ import annotations

import codecs
import functools
import io
import re
import warnings
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from .normalisation import AFTER_APOSTROPHE, JOINERS, MARKS, NARROW_LETTER, WIDE
from .settings import TextSettings
from .subwords import SubwordTokenizer


class Tokenizer(NamedTuple):
    """From a normalised text (`TextSettings.normalise`) to tokens and back.

    Attributes:
        tokenize: returns the tokens of a normalised text; no token is empty.
        detokenise: returns the text of the tokens.
        alphabet: all tokens that there are; none where a text tells them.
    """

    tokenize: Callable[[str], list[str]]
    detokenise: Callable[[Sequence[str]], str]
    alphabet: Sequence[str] = ()


def make_tokenizer(settings: TextSettings) -> Tokenizer:
    """Returns the tokenizer that the settings name.

    Raises:
        ValueError: a dictionary or model is missing or has the wrong format, or the library for
            subwords is not installed; the message names it.
    """
    name = settings.chosen_tokenizer
    if name == "subwords":
        pieces = SubwordTokenizer(settings.subword_model, exact=settings.as_written)
        return Tokenizer(pieces.tokenize, pieces.detokenise, pieces.alphabet)
    if name == "bytes":
        return Tokenizer(_to_bytes, _of_bytes, tuple(map(chr, range(256))))
    if name == "characters":  # A blank is one, too.
        return Tokenizer(list, "".join)
    detokenise = detokenise_chinese if settings.language == "zh" else detokenise_english
    if name == "spaces":
        return Tokenizer(str.split, " ".join if settings.as_written else detokenise)
    return Tokenizer(_WORDS.findall if name == "words" else _jieba(settings), detokenise)


def _to_bytes(text: str) -> list[str]:
    """Returns every byte of a text's UTF-8, as the character of the same number.

    Whatever the text is, its bytes give it back. A lone surrogate, which is none, becomes `?`.
    """
    return list(text.encode("utf-8", "replace").decode("latin-1"))


def _of_bytes(tokens: Sequence[str]) -> str:
    return "".join(tokens).encode("latin-1").decode("utf-8", "replace")


def _jieba(settings: TextSettings) -> Callable[[str], list[str]]:
    """Returns the function to Chinese words by jieba; everything else is as in `_WORDS`.

    jieba breaks `don't` and `café`, so it only receives runs of Chinese with the plain letters and
    digits next to them (`T恤`, `卡拉OK`), and never cuts a Latin word. Words of a dictionary with
    other characters (`C++`) are found before. A dictionary is normalised as the text is. jieba's
    own is read when the first text comes, files of the user's at once.
    """
    load = functools.cache(lambda: _load_jieba(settings))
    if settings.dictionary or settings.user_dictionary:
        load()

    def tokenize(text: str) -> list[str]:
        jieba, own = load()
        cut = functools.partial(jieba.cut, HMM=settings.new_words)
        tokens: list[str] = []
        start = 0
        for match in own.finditer(text) if own else ():
            tokens += _cut(text[start : match.start()], cut)
            tokens.append(match[0])
            start = match.end()
        return tokens + _cut(text[start:], cut)

    return tokenize


def _cut(text: str, cut: Callable[[str], Iterable[str]]) -> list[str]:
    """Returns the tokens of a text, those of Chinese cut; what cuts a Latin word is undone."""
    tokens: list[str] = []
    for match in _CHINESE_OR_WORDS.finditer(text):
        first = len(tokens)
        tokens += cut(match[0]) if match["chinese"] else [match[0]]
        if len(tokens) > first + 1 and _WITHIN_LATIN.search(match[0]):
            for place in range(len(tokens) - 1, first, -1):
                if _WITHIN_LATIN.fullmatch(tokens[place - 1][-1] + tokens[place][0]):
                    tokens[place - 1] += tokens.pop(place)
    return tokens


_LETTERS = rf"[^\W{WIDE}]+(?:[{MARKS}{JOINERS}]+[^\W{WIDE}]*)*"
# For speed, words before a blank come first, and case is ignored only where it has to be.
_WORD = rf"""
    [A-Za-z]+(?=[ ])
    | (?i:https?://|www\.)[^\s"'()\[\]{{}}{WIDE}]+   # An address.
    | [0-9]+(?:[.,:/][0-9]+)+                        # 1,000, 3.5 or 7:30.
    | (?=\w\.)(?i:(?:[A-Z]\.){{2,}})                 # U.S.
    | {_LETTERS}(?:['&-]{_LETTERS})*             # don't, well-known, C4.
    | '(?i:{AFTER_APOSTROPHE})                       # The 's after another character.
    | \.\.\.
    | \S
"""
_CHINESE = r"[\u3005-\u3007\u3400-\u4dbf\u4e00-\u9fff\U00020000-\U0003ffff]"
# Next to Chinese, and not the beginning of a longer word or number.
_PLAIN = rf"[A-Za-z0-9]+(?!['&-]?[^\W{WIDE}]|[.,:/][0-9])"
_CHINESE_RUN = rf"(?P<chinese>[A-Za-z0-9]*{_CHINESE}(?:{_CHINESE}|{_PLAIN})*)"
# Words with apostrophes and hyphens, numbers, addresses, single punctuation marks and characters of
# Chinese.
_WORDS = re.compile(_WORD, re.VERBOSE)
_CHINESE_OR_WORDS = re.compile(f"(?i:{_CHINESE_RUN}) | {_WORD}", re.VERBOSE)
_CHINESE_WORD = re.compile(_CHINESE_RUN, re.VERBOSE)
_WITHIN_LATIN = re.compile("[A-Za-z0-9]{2}")


def _load_jieba(settings: TextSettings) -> tuple[Any, re.Pattern[str] | None]:
    """Returns jieba with its words, and the pattern of those that it cannot find, if any."""
    tokenizer = _import_jieba().Tokenizer()
    path = settings.dictionary
    own, total = _read_dictionary(Path(path)) if path else _own_dictionary()
    # Set here because jieba's own initialisation loads a cache by marshal that every user of the
    # machine can write. Reading the dictionary takes 0.4 s, the cache 0.5 s.
    tokenizer.FREQ, tokenizer.total, tokenizer.initialized = dict(own), total, True
    if settings.split_counts and not path:
        tokenizer.FREQ.update(dict.fromkeys(_own_counts(), 0))
    words = {word: count for word, count in own.items() if count and not _HAN.fullmatch(word)}
    given = _read_words(Path(settings.user_dictionary)) if settings.user_dictionary else {}
    special = []
    for word, count in [*words.items(), *given.items()]:
        normal = settings.normalise(word)
        is_own = not path and word not in given
        if not (_CHINESE_WORD if is_own else _CUT_WORD).fullmatch(normal):
            special.append(normal)
        elif word in given or not own.get(normal):
            tokenizer.add_word(normal, count)
    return tokenizer, _any_of(filter(None, special)) if any(special) else None


_HAN = re.compile("[\u4e00-\u9fff]+")
_CUT_WORD = re.compile("(?=.*[\u4e00-\u9fd5])[\u4e00-\u9fd5A-Za-z0-9]+")  # What jieba cuts out.


def unmatched_words(settings: TextSettings) -> list[str]:
    """Returns the words of the user's dictionaries that no text can give as a token.

    Nothing is left of them, or jieba divides them wherever they stand, since their parts are more
    frequent. Of a dictionary that replaces jieba's own, words of Chinese alone are not tried.
    """
    tokenizer, words = make_tokenizer(settings), list[str]()
    if settings.user_dictionary:
        words += _read_words(Path(settings.user_dictionary))
    if settings.dictionary:
        own, _ = _read_dictionary(Path(settings.dictionary))
        words += [word for word, count in own.items() if count and not _HAN.fullmatch(word)]
    normal = {word: settings.normalise(word) for word in words}
    return [word for word in words if normal[word] not in tokenizer.tokenize(normal[word])]


def _any_of(words: Iterable[str]) -> re.Pattern[str]:
    """Returns the pattern of any of some words, the longest first; none begins within a word."""
    by_first: dict[str, list[str]] = {}
    for word in sorted(set(words), key=lambda word: (-len(word), word)):
        first = re.escape(word[0])  # At the front of the pattern, it tells fast where none is.
        before = f"(?<![A-Za-z0-9]{first})" if word[0].isascii() and word[0].isalnum() else ""
        after = r"(?![A-Za-z0-9])" if word[-1].isascii() and word[-1].isalnum() else ""
        by_first.setdefault(first + before, []).append(re.escape(word[1:]) + after)
    return re.compile("|".join(f"{one}(?:{'|'.join(rest)})" for one, rest in by_first.items()))


def _import_jieba() -> Any:
    with warnings.catch_warnings():
        # It imports pkg_resources, which setuptools deprecates, and has invalid escapes.
        warnings.simplefilter("ignore")
        import jieba
    return jieba


@functools.cache
def _own_dictionary() -> tuple[dict[str, int], int]:
    """Returns jieba's own dictionary, read once a process; not to be changed."""
    return _read_dictionary(_own_path())


def _own_path() -> Path:
    return Path(_import_jieba().__file__).with_name("dict.txt")


@functools.cache
def _own_counts() -> list[str]:
    """Returns the words of jieba's own dictionary that are, or begin with, a number of something.

    What follows the measure word belongs to them where it is often counted (`五辆车`), or where
    the dictionary says that all is a number (`一个两岁`); `三轮车` and `三年级` are other words.
    """
    return _COUNT.findall(_own_path().read_text(encoding="utf-8"))


# Not those that make words of another kind: `三月`, `十分`, `一下`.
_MEASURES = (
    "个只支条张块颗根辆位名朵棵盆盒瓶杯页米天站圈层斤户步元把双件包片道口度面周排组岁年里家间门本头匹座台架套笔串"
    "滴粒碗盘勺袋箱筐篮桶罐群堆行对份种次遍趟回场句首篇封枚顶所栋幢尺寸丈倍秒角毛人"
)
_COUNTED = "钱车楼书碗水酒花信菜钟"
_COUNT = re.compile(
    rf"^([一二三四五六七八九十两][一二三四五六七八九十两百千万零]*[{_MEASURES}]"
    rf"(?:[{_COUNTED}]?(?= )|\S+(?= \d+ m))|[百千万][{_MEASURES}](?= \d+ m))",
    re.MULTILINE,
)


def _read_dictionary(path: Path) -> tuple[dict[str, int], int]:
    try:
        content = path.read_bytes().removeprefix(codecs.BOM_UTF8)
        file = io.BytesIO(content)
        file.name = str(path)  # jieba names it in its errors.
        frequencies, total = _import_jieba().Tokenizer().gen_pfdict(file)
    except (OSError, ValueError) as error:
        raise _wrong_dictionary("dictionary", path, error) from error
    if not total or min(frequencies.values()) < 0:
        raise _wrong_dictionary("dictionary", path, "no words, or negative counts")
    return frequencies, total


def _read_words(path: Path) -> dict[str, int | None]:
    """Returns {word: its count, None where the file has none}."""
    try:
        lines = path.read_bytes().decode("utf-8-sig").splitlines()
    except (OSError, ValueError) as error:
        raise _wrong_dictionary("user_dictionary", path, error) from error
    matches = (_USER_WORD.fullmatch(line.strip()) for line in lines)
    return {match[1]: int(match[2]) if match[2] else None for match in matches if match}


# As jieba reads them; without a count, only a tag of its own is no part of the word.
_TAGS = (
    "ad?g?|an|b|c|dg?|df|eng?|f|g|h|i|j|k|l|m[gq]?|n[grstz]?|nrfg|nrt|o|p|q|r[grz]?|s|tg?|u[dgjlvz]?|"
    "v[dginq]?|w|x|yg?|zg?"
)
_USER_WORD = re.compile(rf"(.+?)(?:\s+([0-9]+)(?:\s+[a-z]+)?|\s+(?:{_TAGS}))?")


def _wrong_dictionary(name: str, path: Path, found: object) -> ValueError:
    form = "word count" if name == "dictionary" else "word` or `word count"
    return ValueError(
        f"{path}: expected {name} to be a UTF-8 file with `{form}` on each line, found: {found}."
    )


def detokenise_chinese(tokens: Sequence[str]) -> str:
    """Returns Chinese text, with blanks only between two words of letters."""
    return _NARROW_PAIR.sub(" ", "\0".join(tokens)).replace("\0", "")


# NUL marks the boundaries of tokens; a normalised text has none.
_NARROW_PAIR = re.compile(f"(?<={NARROW_LETTER}|[{MARKS}{JOINERS}])\0(?={NARROW_LETTER})")


def detokenise_english(tokens: Sequence[str]) -> str:
    """Returns English text.

    There is no blank before commas, full stops and similar marks, inside brackets, before `'s` and
    `n't`, around a slash or between Chinese characters. Quotes open and close alternately; an
    unpaired last single quote closes, since it is more often an apostrophe (`the dogs' tails`).
    """
    opening = _opening_quotes(tokens)
    parts: list[str] = []
    for index, token in enumerate(tokens):
        if index and not _touch(tokens[index - 1], token, opening, index):
            parts.append(" ")
        parts.append(token)
    return "".join(parts)


def _opening_quotes(tokens: Sequence[str]) -> set[int]:
    """Returns the places of opening quotes."""
    double = [index for index, token in enumerate(tokens) if token == '"']
    single = [index for index, token in enumerate(tokens) if token == "'"]
    return {*double[::2], *single[: len(single) // 2 * 2 : 2]}


def _touch(left: str, right: str, opening: set[int], index: int) -> bool:
    if right == "/" and _ADDRESS.match(left):  # It would become the address's own.
        return False
    if right in _QUOTES and index not in opening:
        return True
    if index - 1 in opening or left in _OPENERS or right in _CLOSERS:
        return True
    if _WORD_END.fullmatch(right):
        return "'" not in left
    return bool(_WIDE_PAIR.fullmatch(left[-1:] + right[:1]))


_QUOTES = ("'", '"')
_OPENERS = frozenset("([{$€£/")
_CLOSERS = frozenset([*".,!?;:)]}%/", "..."])
_WORD_END = re.compile(r"'(?:s|m|d|t|re|ve|ll)|n't", re.IGNORECASE)
_ADDRESS = re.compile(r"https?://|www\.", re.IGNORECASE)
_WIDE_PAIR = re.compile(f"[{WIDE}]{{2}}")

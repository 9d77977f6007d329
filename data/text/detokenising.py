"""Detokenising: tokens back to text, with blanks where a writer would put them.

The case of letters does not change: lower-case tokens give lower-case text.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from .normalisation import JOINERS, MARKS, NARROW_LETTER, WIDE


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

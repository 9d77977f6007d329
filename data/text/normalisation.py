"""Normalisation: one spelling for characters that can be typed in several ways."""
# ruff: noqa: RUF001 - this module is about full-width punctuation and unusual quotes.

from __future__ import annotations

import re
import unicodedata
from typing import Any

from towers.ground.arguments import check_choice

LANGUAGES = ("zh", "en")
# Chinese and Japanese script with its punctuation, written without blanks.
WIDE = (
    "\u2014\u2026\u2e80-\u2fdf\u3001-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uff01-\uff65"
    "\U00020000-\U0003ffff"
)
# A letter or digit of a script that separates words by blanks.
NARROW_LETTER = rf"[^\W_{WIDE}]"
# Blocks of scripts with vowel signs outside of the basic plane, all of their characters.
_LATER_SCRIPTS = "\U00010a00-\U00011fff\U00016a00-\U00016fff\U0001e000-\U0001efff"
# The combining marks that belong to words: vowel signs, and accents that no letter has with it.
# Those around symbols do not, nor do selectors of variants.
MARKS = _LATER_SCRIPTS + "".join(
    chr(code)
    for block in (range(0x300, 0x34F), range(0x350, 0x20D0), range(0x2C00, 0xFE00))
    for code in block
    if unicodedata.category(chr(code)) in ("Mn", "Mc")
)
JOINERS = "\u200c\u200d"
# The ends of words that follow an apostrophe, and words that begin with one.
AFTER_APOSTROPHE = rf"(?:s|m|d|t|re|ve|ll|em|cause|til|bout)(?![^\W{WIDE}])"
_WIDE_PUNCTUATION = "，？！：；（）【】《》〈〉、。…—"


def normalise(
    text: str, language: str, *, keep_blanks: bool = False, keep_marks: bool = False
) -> str:
    """Returns the text in its canonical spelling; normalising it again changes nothing.

    Letters and digits are half width, quotes are straight, accents are part of their letters
    (NFC; other combining marks are dropped), and runs of blanks and line ends become one blank.
    Control characters and characters of zero width are dropped; a replacement character or a lone
    surrogate becomes a blank.
    Chinese punctuation is full width (except in `1,000`, `7:30` and `http://`), an ellipsis is one
    `…`, a dash one `—`, and blanks between Chinese characters are dropped. English punctuation is
    half width, an ellipsis is `...` and a dash is `-` between blanks.

    `keep_blanks` is for Chinese text with blanks between its tokens. `keep_marks` keeps combining
    marks, such as the vowel signs of Devanagari, Thai and Arabic, and the joiners of such scripts.
    """
    has_marks = keep_marks and not text.isascii() and _MARK_OF_SCRIPT.search(text)
    table = _WITH_MARKS if has_marks else _CHARACTERS
    text = unicodedata.normalize("NFC", text).translate(table)
    if table is _WITH_MARKS:
        text = _LOOSE_JOINER.sub("", text)
    # A dropped mark may have been between the parts of a Korean syllable.
    text = _with_single_blanks(unicodedata.normalize("NFC", text))
    if language == "zh":
        text = _apply(_CHINESE_RULES, text.translate(_TO_CHINESE))
        text = text if keep_blanks else _BLANKS_IN_CHINESE.sub("", text)
    elif language == "en":
        text = _apply(_ENGLISH_RULES, text.translate(_TO_ENGLISH))
    else:
        check_choice("language", language, LANGUAGES)
    return _with_single_blanks(text)


def _with_single_blanks(text: str) -> str:
    return " ".join(text.split()) if "  " in text else text.strip()


def is_wide(character: str) -> bool:
    """Returns whether a character belongs to a script that is written without blanks."""
    return _WIDE_CHARACTER.match(character) is not None


_WIDE_CHARACTER = re.compile(f"[{WIDE}]")


class _CharacterTable(dict[int, str]):
    """The canonical form of each character in every language, computed at its first use.

    Args:
        kept: characters that are their own form.
    """

    def __init__(self, kept: re.Pattern[str] | None = None) -> None:
        super().__init__()
        self._kept = kept

    def __missing__(self, code: int) -> str:
        character = chr(code)
        is_kept = self._kept is not None and self._kept.match(character)
        self[code] = character if is_kept else _canonical(character)
        return self[code]


def _canonical(character: str) -> str:
    if character in _SAME_MEANING:
        return _SAME_MEANING[character]
    if "\uff01" <= character <= "\uff5e":
        return character if character in _WIDE_PUNCTUATION else chr(ord(character) - 0xFEE0)
    category = unicodedata.category(character)
    if category in ("Zs", "Zl", "Zp", "Cs"):
        return " "
    return "" if category in ("Cc", "Cf", "Mn", "Mc", "Me") else character


_MARK_OF_SCRIPT = re.compile(f"[{MARKS}{JOINERS}]")
_CHARACTERS, _WITH_MARKS = _CharacterTable(), _CharacterTable(_MARK_OF_SCRIPT)
# A joiner that joins no two letters or signs of such a script.
_JOINED = f"\u0590-\u1cff\ua800-\uabff{_LATER_SCRIPTS}"
_LOOSE_JOINER = re.compile(f"(?<![{_JOINED}])[{JOINERS}]|[{JOINERS}](?![{_JOINED}])")
_SAME_MEANING = {
    # Control characters that separate, letters that look like a blank, the replacement character.
    **dict.fromkeys("\t\n\v\f\r\x1c\x1d\x1e\x1f\x85\u115f\u1160\u2800\u3164\uffa0\ufffd", " "),
    **dict.fromkeys("“”„‟〝〞＂«»「」『』", '"'),
    **dict.fromkeys("‘’‚‛`´′｀", "'"),
    **dict.fromkeys("‐‑‒–−", "-"),
    "―": "—",
    "〜": "~",
    "￥": "¥",
    "〔": "【",
    "〕": "】",
}


def _apply(rules: tuple[tuple[re.Pattern[str], str], ...], text: str) -> str:
    for pattern, replacement in rules:
        text = pattern.sub(replacement, text)
    return text


class _Others(dict[int, Any]):
    """A table in which a character without an entry is its own form; no entry would be slower."""

    def __missing__(self, code: int) -> int:
        self[code] = code
        return code


_TO_CHINESE = _Others(str.maketrans("?!;()", "？！；（）"))
_CHINESE_RULES = (
    (re.compile(r"[.。…](?: ?[.。…])+"), "…"),
    (re.compile(r"(?:—|- ?-)(?: ?[-—])*"), "—"),
    (re.compile(rf"(?<!{NARROW_LETTER})\.(?!{NARROW_LETTER})"), "。"),
    (re.compile(r"(?<![0-9]),|,(?![0-9])"), "，"),
    (re.compile(r"(?<![0-9]):(?!//)|:(?![0-9]|//)"), "："),
)
_BLANKS_IN_CHINESE = re.compile(
    rf"(?<=[{WIDE}]) (?=[{WIDE}])|(?<=[{_WIDE_PUNCTUATION}]) | (?=[{_WIDE_PUNCTUATION}])"
)

_TO_ENGLISH = _Others(
    str.maketrans(
        dict(zip("，？！：；（）【】、。《》〈〉", ',?!:;()[],.""""', strict=True)) | {"…": "..."}
    )
)
_ENGLISH_RULES = (
    (re.compile(r"\.(?: ?\.)+"), "..."),
    (re.compile(r"(?:—|--)[-—]*"), " - "),
    (re.compile(rf"' (?={AFTER_APOSTROPHE})", re.IGNORECASE), "'"),
)

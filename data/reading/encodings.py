"""Text that decodes by a wrong codec: told by letters that nobody writes, or by their script."""

from __future__ import annotations

import codecs
import re
from pathlib import Path

from towers.data.compression import first_bytes

GUOBIAO = ("gb18030", "gbk", "gb2312")
OTHERS = ("big5hkscs", "shift_jis", "euc_jp", "euc_kr")
MOST_RARE = 0.2  # Of the Chinese characters; in text that is what it says, some thousandths are.
LEAST_CHARACTERS = 20
# Text that another codec decodes into one script, so much of the letters, is of that script:
# Korean syllables are usual Chinese characters by GB18030, and its kana are those of EUC-JP.
SCRIPTS = {
    "euc_kr": (re.compile("[\uac00-\ud7a3]"), 0.95, "Korean"),
    "euc_jp": (re.compile("[\u3041-\u3096\u30a1-\u30fa]"), 0.2, "Japanese"),
}
_SAMPLE_BYTES = 1 << 17


def check_decoded(path: Path, encoding: str) -> None:
    """Raises ValueError if a file is UTF-8 but another codec is given, or decodes by a Chinese one
    into characters nobody writes.

    Big5 and Shift-JIS text is also valid GB18030, of other characters.
    """
    name = codecs.lookup(encoding).name
    if name.startswith("utf"):
        return
    raw = first_bytes(path, _SAMPLE_BYTES)
    if sum(not character.isascii() for character in _strict(raw, "utf-8")) >= LEAST_CHARACTERS:
        raise ValueError(f"{path}: expected {encoding}, found UTF-8. Give --encoding utf-8.")
    if name not in GUOBIAO:
        return
    for other, (script, least, language) in SCRIPTS.items():
        letters = [one for one in _strict(raw, other) if one.isalpha() and not one.isascii()]
        found = sum(script.match(one) is not None for one in letters)
        if len(letters) >= LEAST_CHARACTERS and found >= least * len(letters):
            raise ValueError(
                f"{path}: expected {encoding}, found bytes that are {language} by {other}. Give "
                f"--encoding {other}."
            )
    rare = rare_fraction(raw.decode(encoding, "ignore"))
    if rare <= MOST_RARE:
        return
    fractions = {name: rare_fraction(text) for name in OTHERS if (text := _strict(raw, name))}
    best = min(fractions, key=lambda name: fractions[name], default=None)
    if best and fractions[best] < rare / 2:
        raise ValueError(
            f"{path}: expected {encoding}, found characters that nobody writes ({rare:.0%} of the "
            f"Chinese ones), but fewer if it is {best}. Give --encoding {best}."
        )


def rare_fraction(text: str) -> float:
    """Returns the fraction of Chinese characters that are common neither in China nor Taiwan.

    >>> rare_fraction("今天天氣真好我們出去走走好嗎今天天气真好我们出去")
    0.0
    """
    chinese = [one for one in text if "\u3400" <= one <= "\u9fff" or "\ue000" <= one <= "\uf8ff"]
    if len(chinese) < LEAST_CHARACTERS:
        return 0.0
    return sum(map(_is_rare, chinese)) / len(chinese)


def _is_rare(character: str) -> bool:
    try:
        character.encode("gb2312")
    except UnicodeError:
        code = character.encode("big5", "ignore")
        return not b"\xa4" <= code[:1] <= b"\xc6"  # The frequent ones stand first in Big5.
    return False


def _strict(raw: bytes, encoding: str) -> str:
    """Returns the decoded text, nothing if some of it is no such text; its end may be cut."""
    try:
        return codecs.getincrementaldecoder(encoding)().decode(raw)
    except UnicodeError:
        return ""

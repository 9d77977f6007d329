"""Mending turns as they are read: broken letters by ftfy, traditional characters by OpenCC."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from towers.ground.extras import import_extra


class Mending(NamedTuple):
    """A way of mending a turn.

    Attributes:
        name: of what it mends, as the report says it.
        mend: from a text to a text.
    """

    name: str
    mend: Callable[[str], str]


def mendings(*, fix_text: bool = False, simplify: bool = False) -> tuple[Mending, ...]:
    """Returns the chosen ways.

    Args:
        fix_text: whether letters that were decoded by another codec than theirs are mended
            (`cafÃ©` becomes `café`), by ftfy. Quotes and widths stay as they are.
        simplify: whether traditional Chinese characters become simplified ones, by OpenCC.

    Raises:
        ValueError: a library is not installed; the message says how to install it.
    """
    chosen = []
    if fix_text:
        ftfy = import_extra("ftfy", "mending", "fix_text mends letters by ftfy")
        config = ftfy.TextFixerConfig(
            uncurl_quotes=False, fix_character_width=False, unescape_html=False, explain=False
        )
        chosen.append(
            Mending("turns with broken letters, mended", lambda text: ftfy.fix_text(text, config))
        )
    if simplify:
        opencc = import_extra("opencc", "mending", "simplify converts characters by OpenCC")
        chosen.append(
            Mending("turns in traditional characters, simplified", opencc.OpenCC("t2s").convert)
        )
    return tuple(chosen)

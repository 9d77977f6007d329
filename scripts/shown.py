"""What commands print: nothing in it moves the cursor, or changes what stands on the terminal.

Corpora, file names, checkpoints, vocabularies and servers may hold characters that a terminal obeys
(ECMA-48). They are shown as what they are, such as `\\x1b`.
"""

from __future__ import annotations

import os
import re
import sys
import unicodedata
from collections.abc import Iterable, Sequence
from typing import Any, TextIO

from towers.ground.json_text import json_text

# Control characters but line feed and tab, the marks that reorder text (Unicode TR 9), and halves
# of surrogate pairs, which stand for bytes of file names and cannot be printed.
OBEYED = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)


LONGEST_MESSAGE = 300  # Characters of an error about which nothing is cut.
LONGEST_WORD = 80
LARGE = 1e6  # A number from here on has no fixed number of decimals.
COLOURS = {"red": 31, "green": 32, "yellow": 33}  # ECMA-48, SGR.


def show(
    *values: object,
    file: TextIO | None = None,
    flush: bool = False,
    colour: str | None = None,
) -> None:
    """Prints values as `print` does, without characters that a terminal obeys.

    Args:
        values, file, flush: as in `print`.
        colour: of `COLOURS`, in which a terminal shows them; None for its own.
    """
    text = " ".join(printable(str(value)) for value in values)
    # https://no-color.org
    forbidden = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    if colour is not None and not forbidden and (sys.stdout if file is None else file).isatty():
        text = f"\x1b[{COLOURS[colour]}m{text}\x1b[0m"
    print(text, file=file, flush=flush)


def show_json(value: Any) -> None:
    """Prints a value as one line of JSON."""
    show(json_text(value), flush=True)


def decimals(value: float) -> str:
    """Returns a metric as people read it.

    >>> decimals(2.5), decimals(1e300), decimals(float("inf"))
    ('2.5000', '1e+300', 'inf')
    """
    return f"{value:.4f}" if abs(value) < LARGE else f"{value:.5g}"


def table(rows: Iterable[Sequence[str]], between: str = "  ") -> list[str]:
    """Returns rows of cells as lines with aligned columns.

    >>> table([("run", "step"), ("runs/a", "10")])
    ['run     step', 'runs/a  10']
    >>> table([("下雨", "50%"), ("rain", "9%")])
    ['下雨  50%', 'rain  9%']
    """
    rows = list(rows)
    widths = [max(map(columns_of, column)) for column in zip(*rows, strict=True)]

    def filled(text: str, width: int) -> str:
        return text + " " * (width - columns_of(text))

    return [between.join(map(filled, row, widths)).rstrip() for row in rows]


def columns_of(text: str) -> int:
    """Returns how many columns of a terminal a text takes; Chinese characters take two."""
    return len(text) + sum(unicodedata.east_asian_width(one) in ("W", "F") for one in text)


def without_nodes(message: str) -> str:
    """Returns a message of TensorFlow without the nodes of its graphs, in one line.

    Of several errors, such as one in each tower, it is the first.

    >>> without_nodes("{{function_node Next}} a.jpg; No such file\\n\\t [[{{node Read}}]]")
    'a.jpg; No such file'
    >>> without_nodes("Two root error(s) found.\\n (0) INTERNAL: full\\n (1) INTERNAL: full, too")
    'full'
    >>> without_nodes("Detected at node a/b defined at:\\n<stack traces unavailable>\\nfull")
    'full'
    """
    first = re.search(r"root error\(s\) found\.\s*\(0\) [A-Z_]+: (.*?)\s\(1\) ", message, re.DOTALL)
    message = first[1] if first else message
    nodes = r"\[\[.*?\]\]|\{\{.*?\}\}|\[Op:.*?\]| name:\s*$"
    message = re.sub(rf"{nodes}|Detected at node [^<]*<stack traces unavailable>", "", message)
    return " ".join(message.split())


def brief(message: str) -> str:
    """Returns a message whose very long words, such as a number of a thousand digits, are cut.

    A path is as many words as it has parts.

    >>> brief("expected a number, not " + 400 * "9")
    'expected a number, not 999999999999999999999999999999...999999'
    """
    if len(message) <= LONGEST_MESSAGE:
        return message
    long = rf"[^\s/]{{{LONGEST_WORD},}}"
    return re.sub(long, lambda word: f"{word[0][:30]}...{word[0][-6:]}", message)


def printable(text: str) -> str:
    r"""Returns the text with everything that a terminal obeys escaped.

    >>> printable("ends the line\nand \x1b[2J the screen")
    'ends the line\nand \\x1b[2J the screen'
    >>> printable(b"caf\xe9".decode("utf-8", "surrogateescape"))
    'caf\\xe9'
    """

    def escaped(match: re.Match[str]) -> str:
        one = match[0]
        if "\udc80" <= one <= "\udcff":  # A byte that is not of UTF-8.
            return f"\\x{ord(one) - 0xDC00:02x}"
        return one.encode("unicode_escape").decode("ascii")

    return OBEYED.sub(escaped, text)

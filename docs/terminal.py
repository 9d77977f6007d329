"""Draws what a terminal showed as an SVG picture.

script --quiet --command "python3 scripts/bootstrap.py train" shown.txt
python docs/terminal.py shown.txt docs/terminal.svg
"""

from __future__ import annotations

import html
import re
import sys
from pathlib import Path

COLUMNS, FIRST, LAST = 80, 12, 14  # Lines at the beginning and at the end; three dots between them.
WIDTH, HEIGHT, MARGIN = 8.43, 19, 14  # Of a character, of a line, around them; in pixels at 14 px.
TYPED, SHOWN = "#9ece6a", "#c8d0f0"
COMMAND = "$ python3 scripts/bootstrap.py train"
ERASE = "\x1b[K"  # To the end of the line.
ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def main(source: str, target: str) -> None:
    """Reads the file of `script` and writes the picture."""
    text = Path(source).read_bytes().decode("utf-8")  # With its carriage returns.
    Path(target).write_text(draw(chosen(lines_of(text))), "utf-8")


def lines_of(text: str) -> list[str]:
    """Returns the lines as they were in the end: a carriage return writes over what there was."""
    shown = []
    for line in text.split("\n"):
        left = ""
        for part in line.split("\r"):
            rest = "" if ERASE in part else left[len(part) :]
            left = ESCAPE.sub("", part) + rest
        if left.strip() and not left.startswith("Script "):
            shown.append(left.rstrip())
    return shown


def chosen(lines: list[str]) -> list[str]:
    """Returns the command, the first and the last lines, folded as a terminal folds them."""
    folded = [line[at : at + COLUMNS] for line in lines for at in range(0, len(line), COLUMNS)]
    return [COMMAND, *folded[:FIRST], "...", *folded[-LAST:]]


def draw(lines: list[str]) -> str:
    """Returns the picture."""
    width, height = COLUMNS * WIDTH + 2 * MARGIN, len(lines) * HEIGHT + 2 * MARGIN
    texts = [
        f'<text x="{MARGIN}" y="{MARGIN + HEIGHT * number - 5}" '
        f'fill="{TYPED if line.startswith(("$", "you>")) else SHOWN}">{html.escape(line)}</text>'
        for number, line in enumerate(lines, 1)
    ]
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height}">',
            f'<rect width="{width:.0f}" height="{height}" rx="8" fill="#1a1b26"/>',
            '<g font-family="monospace" font-size="14" xml:space="preserve">',
            *texts,
            "</g>",
            "</svg>\n",
        ]
    )


if __name__ == "__main__":
    main(*sys.argv[1:])

"""Text with a dialogue on each line, its turns divided by tabs, bars or the word `__eou__`.

A first column of numbers is none of the turns: labels of right and wrong answers, or a count.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from towers.data.reading.dialogue_file import Dialogue, DialogueFile

DIVIDERS = ("__eou__", "\t", " ||| ", " | ")
NUMBERED_FRACTION = 0.9  # Of the lines begin with a number where the first column has numbers.
WRONG_ANSWER = "dialogues whose label 0 says that the answer is wrong"


def looks(line: str) -> bool:
    """Returns whether the line could belong to such a file."""
    line = line.strip()
    if DIVIDERS[0] in line:
        return line.endswith(DIVIDERS[0])  # Else it is in a column of something else.
    return any(divider in line for divider in DIVIDERS)


def read(file: DialogueFile) -> Iterator[Dialogue]:
    """Yields a dialogue for each line, a turn for each column."""
    sample = file.sample()
    divider = _divider(sample)
    first = _numbers(sample, divider)
    if first:
        file.report.note(f"{file.path}: the first column has {first}, which are not read as turns")
    for line in file.usable_lines():
        columns = line.text.split(divider)
        if divider == "__eou__":
            columns = [column for column in columns if column.strip()]
        while len(columns) > 2 and not columns[-1].strip():
            columns.pop()  # Tabs that only end the line.
        turns = columns if len(columns) > 1 else None
        if first and turns and _is_number(turns[0]):
            if first == LABELS and float(turns[0]) == 0:
                file.skip(WRONG_ANSWER, line)
                continue
            turns = turns[1:] if len(turns) > 2 else None
            if first == LABELS and turns and len(turns) % 2:
                turns = ["", *turns]  # The label is about the last one, which is the answer.
        name = "a tab" if divider == "\t" else divider.strip()
        yield from file.dialogue(turns, line, f"lines without {name}")


LABELS, NUMBERS = "labels", "numbers"


def _divider(sample: Sequence[str]) -> str:
    """Returns what divides the columns of most lines."""
    counts = {one: sum(one in line.strip() for line in sample) for one in DIVIDERS}
    return max(counts, key=lambda one: counts[one])


def _numbers(sample: Sequence[str], divider: str) -> str:
    """Returns what a first column of numbers has, or nothing where it is a turn."""
    rows = [columns for line in sample if len(columns := line.split(divider)) > 2]
    found = [columns[0].strip() for columns in rows if _is_number(columns[0])]
    if len(found) < max(1.0, NUMBERED_FRACTION * len(sample)):
        return ""
    return LABELS if {float(one) for one in found} <= {0.0, 1.0} and len(found) > 2 else NUMBERS


def _is_number(text: str) -> bool:
    digits = text.strip().removeprefix("-").replace(".", "", 1)
    return digits.isascii() and digits.isdigit()

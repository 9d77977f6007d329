"""Text with a dialogue on each line, its turns divided by tabs, bars or the word `__eou__`.

A first or last column of numbers or names is none of the turns: labels of right and wrong answers,
labels of topics, or a count.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Sequence

from towers.data.reading.dialogue_file import Dialogue, DialogueFile

DIVIDERS = ("__eou__", "\t", " ||| ", " | ")
COLUMN_FRACTION = 0.9  # Of the lines have a label or a number where a column has them.
FEW = 4  # Labels of topics are each in so many lines, on average.
LABELS, NUMBERS = "labels", "numbers"
CLASSES = "labels that judge no answer, since no question has both"
_NUMBER = re.compile(r"-?\d+(?:\.\d*)?")
_ID = re.compile(r"[^\W\d]{1,8}[-_]?\d+")  # A count with letters, such as q_12.
_OTHER = re.compile(r"<[^<>\t]+>\t|\|")  # A tag may name an answer; a bar opens a row of Markdown.
_NAME = re.compile(r"[^\W\d]{1,20}")
WRONG_ANSWER = "dialogues whose label 0 says that the answer is wrong"


def looks(line: str) -> bool:
    """Returns whether the line could belong to such a file."""
    line = line.strip()
    if _OTHER.match(line):
        return False
    if DIVIDERS[0] in line:
        return line.endswith(DIVIDERS[0])  # Else it is in a column of something else.
    return any(divider in line for divider in DIVIDERS)


def read(file: DialogueFile) -> Iterator[Dialogue]:
    """Yields a dialogue for each line, a turn for each column."""
    sample = file.sample()
    divider = _divider(sample)
    rows, others = [line.strip().split(divider) for line in sample], dict[int, str]()
    for place in (-1, 0):
        if found := _of_column(rows, place):
            others[place] = found
            rows = [row[:-1] for row in rows]  # The first one is judged without the last.
    for place, found in others.items():
        which = "last" if place else "first"
        note = f"the {which} column has {found}, which are not read as turns"
        file.report.note(f"{file.path}: {note}")
    is_labelled = LABELS in others.values()
    for line in file.usable_lines():
        columns = line.text.split(divider)
        if divider == "__eou__":
            columns = [column for column in columns if column.strip()]
        while len(columns) > 2 and not columns[-1].strip():
            columns.pop()  # Tabs that only end the line.
        turns = columns if len(columns) > 1 else None
        if turns and others:
            if any(kind == LABELS and _is_0(turns[place]) for place, kind in others.items()):
                file.skip(WRONG_ANSWER, line)
                continue
            kept = turns[0 in others : len(turns) - (-1 in others)]
            turns = kept if len(kept) > 1 else None
            if is_labelled and turns and len(turns) % 2:
                turns = ["", *turns]  # The label is about the last one, which is the answer.
        name = "a tab" if divider == "\t" else divider.strip()
        yield from file.dialogue(turns, line, f"lines without {name}")


def judges(labelled: Iterable[tuple[Hashable, object]]) -> bool:
    """Returns whether labels judge answers, and are no classes: a question has more than one.

    Args:
        labelled: questions, each with the label of an answer to it.
    """
    first: dict[Hashable, object] = {}
    return any(first.setdefault(question, label) != label for question, label in labelled)


def _is_0(text: str) -> bool:
    return _NUMBER.fullmatch(text.strip()) is not None and not float(text)


def _divider(sample: Sequence[str]) -> str:
    """Returns what divides the columns of most lines."""
    counts = {one: sum(one in line.strip() for line in sample) for one in DIVIDERS}
    return max(counts, key=lambda one: counts[one])


def _of_column(rows: Sequence[Sequence[str]], place: int) -> str:
    """Returns what a column has that is none of the turns, or nothing where it is one."""
    least = max(1.0, COLUMN_FRACTION * len(rows))
    rows = [row for row in rows if len(row) > 2]
    found = [row[place].strip() for row in rows]
    numbers = [float(text) for text in found if _NUMBER.fullmatch(text)]
    if len(numbers) >= least:
        if not ({*numbers} <= {0.0, 1.0} and len(numbers) > 2):
            return "" if place else NUMBERS
        questions = (tuple(row[:-2] if place else row[1:-1]) for row in rows)
        return LABELS if judges(zip(questions, found, strict=True)) else CLASSES
    if place or len(found) < least or len({*map(len, rows)}) > 1 or not len(rows[0]) % 2:
        return ""
    if sum(_ID.fullmatch(text) is not None for text in found) >= max(3, least):
        return "numbers with letters"
    counts = Counter(text for text in found if _NAME.fullmatch(text))
    is_topic = counts.total() >= least and FEW * len(counts) <= len(found)
    return f"labels of topics, such as {counts.most_common(1)[0][0]}" if is_topic else ""

"""Text with a dialogue on each line, its turns divided by tabs, bars or the word `__eou__`.

A first or last column of numbers or names is none of the turns: labels of right and wrong answers,
labels of topics, or a count.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Sequence

from towers.data.reading.dialogue_file import Dialogue, DialogueFile
from towers.data.reading.records import COLUMN_NAMES

DIVIDERS = ("__eou__", "\t", " ||| ", " | ")
COLUMN_FRACTION = 0.9  # Of the lines have a label or a number where a column has them.
FEW = 4  # Labels of topics are each in so many lines, on average.
ENOUGH = 10  # Lines of two columns show whether one of them has no talk.
MOST_NAMES = 8
MOST_LABELS = 5  # Different numbers as labels, such as stars.
LABELS, NUMBERS = "labels", "numbers"
CLASSES = "labels that judge no answer, since no question has both"
_NUMBER = re.compile(r"-?\d+(?:\.\d*)?")
_KINDS = (  # The first are counts with letters, such as q_12.
    ("numbers with letters", re.compile(r"[^\W\d]{1,8}[-_]?\d+")),
    ("dates or times", re.compile(r"\d{4}[-/.]\d{1,2}[-/.]\d{1,2}\b.*|\d\d?:\d\d(?::\d\d)?")),
    ("licences", re.compile(r"CC-BY\b.*")),
)
_HEADING = re.compile(r"[a-z][a-z0-9_ ]{0,29}")
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
    """Yields a dialogue for each line, a turn for each column that holds talk."""
    sample = file.sample
    # What divides the columns of most lines.
    divider = max(DIVIDERS, key=lambda one: sum(one in line.strip() for line in sample))
    rows = [line.strip().split(divider) for line in sample]
    has_names = len(rows) > 1 and _names_columns(rows[0])
    others = other_columns(rows[has_names:])
    for place, found in others.items():
        which = {-1: "last", 0: "first"}.get(place, f"{place + 1}.")
        note = f"the {which} column has {found}, which are not read as turns"
        file.report.note(f"{file.path}: {note} unless the first line is question TAB answer")
    if has_names:
        file.report.note(f"{file.path}: the first line names columns: {', '.join(rows[0])}")
    is_labelled = LABELS in others.values()
    lines = itertools.islice(file.usable_lines(), has_names, None)
    for line in lines:
        columns = line.text.split(divider)
        if divider == "__eou__":
            columns = [column for column in columns if column.strip()]
        while len(columns) > 2 and not columns[-1].strip():
            columns.pop()  # Tabs that only end the line.
        turns = columns if len(columns) > 1 else None
        if turns and others:
            labels = [turns[place].strip() for place, kind in others.items() if kind == LABELS]
            if any(_NUMBER.fullmatch(label) and not float(label) for label in labels):
                file.skip(WRONG_ANSWER, line)
                continue
            left_out = {place % len(turns) for place in others}
            kept = [turn for place, turn in enumerate(turns) if place not in left_out]
            turns = kept if len(kept) > 1 else None
            if is_labelled and turns and len(turns) % 2:
                turns = ["", *turns]  # The label is about the last one, which is the answer.
        name = "a tab" if divider == "\t" else divider.strip()
        flaw = "lines of one turn" if others else f"lines without {name}"
        yield from file.dialogue(turns, line, flaw)


def _names_columns(row: Sequence[str]) -> bool:
    """Returns whether a first row has names of columns, one of them a usual one."""
    names = [name.strip().lower() for name in row]
    return all(map(_HEADING.fullmatch, names)) and not COLUMN_NAMES.isdisjoint(names)


def other_columns(rows: Sequence[Sequence[str]]) -> dict[int, str]:
    """Returns {place of a column that holds no turns: what it has}; the last one is -1."""
    others, left = dict[int, str](), rows
    for place in (-1, 0):
        if found := _of_column(left, place):
            others[place] = found
            left = [row[:-1] for row in left]  # The first one is judged without the last.
    for place in range(1, min(map(len, rows), default=0) - 1):
        if others and _of_column(rows, place) == NUMBERS:
            others[place] = NUMBERS
        elif not any(row[place].strip() for row in rows):
            others[place] = "blanks"
    return others


def judges(labelled: Iterable[tuple[Hashable, object]]) -> bool:
    """Returns whether labels judge answers, and are no classes: a question has more than one.

    Args:
        labelled: questions, each with the label of an answer to it.
    """
    first: dict[Hashable, object] = {}
    return any(first.setdefault(question, label) != label for question, label in labelled)


def _of_column(rows: Sequence[Sequence[str]], place: int) -> str:
    """Returns what a column has that is none of the turns, or nothing where it is one."""
    least = max(1.0, COLUMN_FRACTION * len(rows))
    long = [row for row in rows if len(row) > 2]
    pairs = [row for row in rows if len(row) == 2]
    rows = long if len(long) >= least else pairs if len(pairs) >= max(ENOUGH, least) else []
    found = [row[place].strip() for row in rows]
    is_again = len({*map(tuple, rows)}) < FEW * len({*found})
    if rows is pairs and len({*found}) < len(rows) and is_again:
        return ""  # The same pairs again and again.
    numbers = [float(text) for text in found if _NUMBER.fullmatch(text)]
    if found and len(numbers) >= least:
        if {*numbers} <= {0.0, 1.0} and len(numbers) > 2 and rows is long:
            questions = (tuple(row[:-2] if place else row[1:-1]) for row in rows)
            return LABELS if judges(zip(questions, found, strict=True)) else CLASSES
        is_answer = place and rows is pairs and len({*numbers}) > MOST_LABELS
        return "" if is_answer else NUMBERS  # Sums have numbers as answers.
    if (place and rows is pairs) or len(found) < least:
        return ""
    for kind, pattern in _KINDS[bool(place or rows is pairs) :]:
        if sum(pattern.fullmatch(text) is not None for text in found) >= max(3, least):
            return kind
    if len({*map(len, rows)}) > 1 or (rows is long and not len(rows[0]) % 2):
        return ""
    counts = Counter(text for text in found if _NAME.fullmatch(text))
    is_topic = counts.total() >= least and FEW * len(counts) <= len(found)
    if rows is pairs:  # A question may have many answers: names are few and short.
        is_topic &= len(counts) <= MOST_NAMES and all(len(one.encode()) <= 12 for one in counts)
    return f"names or labels, such as {counts.most_common(1)[0][0]}" if is_topic else ""

"""The rules that make contents, the values for the gaps of a pattern, from lists and tables.

A content is a dictionary from the name of a gap to the text that fills it. A table is a list of
contents that all have the same gaps.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Sequence

Content = dict[str, str]

GOLDEN = (5**0.5 - 1) / 2  # Multiples of it, modulo 1, are spread as evenly as can be.


def empty() -> list[Content]:
    """Returns one content without values, for phrasings without gaps."""
    return [{}]


def each(words: Sequence[str], *, gap: str) -> list[Content]:
    """Returns a content for each word, which fills the one gap."""
    return [{gap: word} for word in words]


def rows(table: Sequence[Content]) -> list[Content]:
    """Returns the rows of a table as they are."""
    return list(table)


def rows_with_each(
    table: Sequence[Content], words: Sequence[str], *, gap: str, num_rows: int
) -> list[Content]:
    """Returns each of the first rows of a table together with each word."""
    return [{**row, gap: word} for row in table[:num_rows] for word in words]


def both_ways(table: Sequence[Content]) -> list[Content]:
    """Returns each row of a table with the gaps a and b, and the same row with both swapped."""
    return [content for row in table for content in (row, {"a": row["b"], "b": row["a"]})]


def sums(words: Sequence[str], *, largest: int) -> list[Content]:
    """Returns a, b, their sum c, and the numbers d and e after it, for addends up to `largest`.

    The words are the numbers from zero on.
    """
    return [
        {
            "a": words[a],
            "b": words[b],
            "c": words[a + b],
            "d": words[a + b + 1],
            "e": words[a + b + 2],
        }
        for a in range(largest + 1)
        for b in range(largest + 1)
    ]


def sums_of_three(words: Sequence[str], *, largest: int) -> list[Content]:
    """Returns a, b and x with c = a + b, d = a + b + x, e = a + b - x and f = a + x.

    They go from one to `largest`; those with a negative e are left out.
    """
    numbers = range(1, largest + 1)
    return [
        {
            "a": words[a],
            "b": words[b],
            "x": words[x],
            "c": words[a + b],
            "d": words[a + b + x],
            "e": words[a + b - x],
            "f": words[a + x],
        }
        for a, b, x in itertools.product(numbers, repeat=3)
        if x <= a + b
    ]


def counted(
    words: Sequence[str], table: Sequence[Content], *, largest: int, two: str, things: int
) -> list[Content]:
    """Returns a, b and c = a + b as counts of a thing, such as 四支; `first` and `sum` are a and c.

    These two are without the measure. The other gaps are those of the thing's row.

    Args:
        words: the numbers from zero on.
        table: rows with a thing and its measure; they take turns.
        largest: the largest sum.
        two: the number two ahead of a measure.
        things: how many rows each pair of numbers has.
    """
    counts, turns = [*words[:2], two, *words[3:]], itertools.cycle(table)
    return [
        {
            **row,
            "a": counts[a] + row["measure"],
            "b": counts[c - a] + row["measure"],
            "c": counts[c] + row["measure"],
            "first": words[a],
            "sum": words[c],
        }
        for c in range(2, largest + 1)
        for a in range(1, c)
        for row in itertools.islice(turns, things)
    ]


def differences(words: Sequence[str], *, largest: int) -> list[Content]:
    """Returns a, b, c = a - b and the term `a-b` for all a up to `largest` and all b up to a.

    A tokenizer takes the term as one word.
    """
    return [
        {"a": words[a], "b": words[b], "c": words[a - b], "term": f"{words[a]}-{words[b]}"}
        for a in range(largest + 1)
        for b in range(a + 1)
    ]


def products(words: Sequence[str], *, largest: int) -> list[Content]:
    """Returns a, b, c = a * b and the term `axb` for all factors up to `largest`.

    A tokenizer takes the term as one word.
    """
    return [
        {"a": words[a], "b": words[b], "c": words[a * b], "term": f"{words[a]}x{words[b]}"}
        for a in range(largest + 1)
        for b in range(largest + 1)
    ]


def quotients(words: Sequence[str], *, largest: int) -> list[Content]:
    """Returns a, b, c = a / b and the term `a/b` for all b and c from one to `largest`.

    A tokenizer takes the term as one word.
    """
    return [
        {"a": words[b * c], "b": words[b], "c": words[c], "term": f"{words[b * c]}/{words[b]}"}
        for b in range(1, largest + 1)
        for c in range(1, largest + 1)
    ]


def comparisons(words: Sequence[str], *, largest: int) -> list[Content]:
    """Returns a, b, the larger and the smaller, for all pairs of different numbers."""
    return [
        {"a": words[a], "b": words[b], "larger": words[max(a, b)], "smaller": words[min(a, b)]}
        for a in range(largest + 1)
        for b in range(largest + 1)
        if a != b
    ]


def neighbours(words: Sequence[str], *, circular: bool) -> list[Content]:
    """Returns each word x with the word before it and the two words after it.

    Args:
        words: in their order.
        circular: whether the first word follows the last one; otherwise words that lack a
            neighbour are left out.
    """
    count = len(words)
    places = range(count) if circular else range(1, count - 2)
    return [
        {
            "x": words[i],
            "before": words[i - 1],
            "after": words[(i + 1) % count],
            "later": words[(i + 2) % count],
        }
        for i in places
    ]


def made_up(
    forms: Sequence[Sequence[Sequence[str]]],
    *,
    gaps: str,
    first: int,
    count: int,
    table: Sequence[Content] = ({},),
) -> list[Content]:
    """Returns contents of made-up words, each of which is in one content only.

    Args:
        forms: for each form of a word the lists of its parts; the forms take turns.
        gaps: the names of the gaps that made-up words fill.
        first: the number of the first word, so that two kinds need not have the same words.
        count: how many contents.
        table: its rows take turns; the other gaps are theirs.

    Raises:
        ValueError: there are fewer words than are asked for.
    """
    names = gaps.split()
    words = [made_up_word(forms, first + index) for index in range(count * len(names))]
    return [
        {
            **table[index % len(table)],
            **dict(zip(names, words[index * len(names) :], strict=False)),
        }
        for index in range(count)
    ]


def made_up_word(forms: Sequence[Sequence[Sequence[str]]], number: int) -> str:
    """Returns one made-up word; another for every number."""
    index, form = divmod(number, len(forms))
    parts = forms[form]
    size = math.prod(map(len, parts))
    if index >= size:
        raise ValueError(
            f"There are {size} made-up words of this form. Received the number {index}; "
            "give the form more parts."
        )
    place = index * spreading_step(size) % size
    chosen = []
    for words in parts:
        place, choice = divmod(place, len(words))
        chosen.append(words[choice])
    return "".join(chosen)


@functools.cache
def spreading_step(size: int) -> int:
    """Returns a number whose multiples, modulo the size, meet every place before one comes again.

    The first few are far apart, so that not only the first part of a word varies.
    """
    step = max(1, int(size * GOLDEN))
    while math.gcd(step, size) > 1:
        step -= 1
    return step


RULES: dict[str, Callable[..., list[Content]]] = {
    rule.__name__: rule
    for rule in (
        *(empty, each, rows, rows_with_each, both_ways, sums, sums_of_three, counted),
        *(differences, products, quotients, comparisons, neighbours, made_up),
    )
}

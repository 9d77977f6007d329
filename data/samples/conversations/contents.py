"""The rules that make contents, the values for the gaps of a pattern, from lists and tables.

A content is a dictionary from the name of a gap to the text that fills it. A table is a list of
contents that all have the same gaps.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

Content = dict[str, str]


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

    Args:
        words: the numbers from zero on, in words.
        largest: the largest addend.
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


def differences(words: Sequence[str], *, largest: int) -> list[Content]:
    """Returns a, b and c = a - b for all a up to `largest` and all b up to a."""
    return [
        {"a": words[a], "b": words[b], "c": words[a - b]}
        for a in range(largest + 1)
        for b in range(a + 1)
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


RULES: dict[str, Callable[..., list[Content]]] = {
    "empty": empty,
    "each": each,
    "rows": rows,
    "rows_with_each": rows_with_each,
    "both_ways": both_ways,
    "sums": sums,
    "differences": differences,
    "comparisons": comparisons,
    "neighbours": neighbours,
}

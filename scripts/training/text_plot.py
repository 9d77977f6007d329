"""Tables and curves as text: what a terminal shows without any library."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

Curve = Sequence[tuple[float, float]]
MARKS = "abcdefgh"
BOTH = "*"  # Several curves meet in this place.
LABEL_WIDTH = 9


def table(rows: Iterable[Sequence[str]]) -> list[str]:
    """Returns the rows as lines with aligned columns.

    >>> table([("run", "step"), ("runs/a", "10")])
    ['run     step', 'runs/a  10']
    """
    rows = list(rows)
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        cells = [f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)]
        lines.append("  ".join(cells).rstrip())
    return lines


def plot(curves: Sequence[Curve], *, width: int = 78, height: int = 12) -> list[str]:
    """Returns a picture of curves in the same axes, the first drawn with a, the next with b, ...

    Args:
        curves: points (x, y) each; of those that fall into one column the last one counts.
        width, height: of the picture in characters, the values at the axes included.
    """
    points = [point for curve in curves for point in curve]
    if not points:
        return []
    columns = width - LABEL_WIDTH - 2
    (low_x, high_x), (low_y, high_y) = (limits([p[axis] for p in points]) for axis in (0, 1))
    grid = [[" "] * columns for _ in range(height)]
    for mark, curve in zip(MARKS, curves, strict=False):
        for x, y in {place(x, low_x, high_x, columns): y for x, y in curve}.items():
            row = grid[height - 1 - place(y, low_y, high_y, height)]
            row[x] = mark if row[x] == " " else BOTH
    labels = {0: high_y, height - 1: low_y}
    lines = [
        f"{f'{labels[i]:.4g}' if i in labels else '':>{LABEL_WIDTH}} |{''.join(row).rstrip()}"
        for i, row in enumerate(grid)
    ]
    end = f"{high_x:g}"
    axis = f"{low_x:g}".ljust(columns - len(end)) + end
    return [*lines, f"{'':>{LABEL_WIDTH}} +{'-' * columns}", f"{'':>{LABEL_WIDTH + 2}}{axis}"]


def limits(values: Sequence[float]) -> tuple[float, float]:
    """Returns the smallest and the largest value, apart from each other."""
    low, high = min(values), max(values)
    return (low, high) if high > low else (low - 0.5, high + 0.5)


def place(value: float, low: float, high: float, count: int) -> int:
    """Returns the number of the cell, out of `count`, in which a value lies."""
    return min(count - 1, int((value - low) / (high - low) * count))

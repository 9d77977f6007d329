"""Tables are aligned, and a picture of curves has each point in its place."""

from towers.scripts.training.text_plot import plot, table


def test_columns_are_aligned():
    assert table([("a", "long", "x"), ("longer", "b", "")]) == ["a       long  x", "longer  b"]


def test_each_point_is_in_its_place():
    lines = plot([[(0, 1.0), (10, 3.0)], [(0, 3.0), (10, 3.0)]], width=21, height=3)
    assert lines == [
        "        3 |b        *",
        "          |",
        "        1 |a",
        "          +----------",
        "           0       10",
    ]


def test_curves_that_are_flat_or_empty_are_drawn():
    assert plot([[], []]) == []
    lines = plot([[(5, 2.0)], []], width=40, height=4)
    assert sum(line.count("a") for line in lines) == 1
    assert all(len(line) <= 40 for line in lines)

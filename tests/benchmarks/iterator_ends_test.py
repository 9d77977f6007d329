"""The ends of iterators are measured as towers and as TensorFlow open them."""

from benchmarks.iterator_ends import main


def test_both_ways_have_a_row(capsys):
    assert main(["--seconds", "0.05", "--iterators", "3"]) == 0
    rows = capsys.readouterr().out.splitlines()[2:]
    assert [row.split(" | ")[0] for row in rows] == ["| iter", "| iterator_of"]
    assert all(" of 3 | " in row for row in rows)

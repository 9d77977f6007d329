"""The first step is timed, of towers and of a rival."""

import pytest

from benchmarks import first_step


@pytest.mark.slow
def test_the_first_step_of_each_way_is_timed(capsys):
    command = ["--towers", "1,2", "--tasks", "made_mlp", "--ways", "towers,mirrored"]
    first_step.main(command)
    rows = [line.strip("| ").split(" | ") for line in capsys.readouterr().out.splitlines()[2:]]
    assert [row[0] for row in rows] == ["towers 1", "mirrored 1", "towers 2", "mirrored 2"]
    assert all(float(value) > 0 for row in rows for value in row[1:])

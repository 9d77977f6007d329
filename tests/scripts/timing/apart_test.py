"""Runs of another process are made there, and its end is told."""

import os

import pytest

from tests.scripts.timing import runs_of_a_child
from towers.scripts.timing.apart import Apart


def test_runs_are_made_in_another_process_that_ends_with_the_context():
    with Apart(runs_of_a_child.runs, 3) as process:
        runs = process.runs()
        assert list(runs) == ["pid", "product", "kill"]
        pid = runs["pid"](1)
        assert pid not in (os.getpid(), os.getppid())
        assert [runs["product"](steps) for steps in (1, 2, 5)] == [3, 6, 15]
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_an_error_of_what_a_user_gave_is_the_same_here():
    with (
        Apart(runs_of_a_child.wrong, "no such data") as process,
        pytest.raises(FileNotFoundError, match="no such data"),
    ):
        process.runs()


def test_a_process_that_was_killed_is_told():
    with Apart(runs_of_a_child.runs, 1) as process:
        run = process.runs()["kill"]
        with pytest.raises(RuntimeError, match=r"times steps ended early \(exit status -9\)"):
            run(1)

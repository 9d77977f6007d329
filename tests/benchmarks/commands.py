"""What the tests of `python -m benchmarks` have in common."""

import contextlib
import sys

import pytest

from benchmarks.commands import main

TINY = ["--batch-size", "100", "--set", "filters=2,3", "--set", "hidden_size=4"]


def write_output(path, arguments):
    """Ends this process with the exit code of a command, whose output goes into a file."""
    with open(path, "w", encoding="utf-8") as file, contextlib.redirect_stdout(file):
        sys.exit(main(arguments))


def refuse(arguments, capsys):
    """Runs a command and returns how it refuses."""
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    return capsys.readouterr().err

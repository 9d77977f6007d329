"""What the tests of `python -m benchmarks` have in common."""

import pytest

from benchmarks.commands import main

TINY = ["--batch-size", "100", "--set", "filters=2,3", "--set", "hidden_size=4"]


def refuse(arguments, capsys):
    """Runs a command and returns how it refuses."""
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    return capsys.readouterr().err

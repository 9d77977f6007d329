"""Programs beside `python -m benchmarks` refuse wrong numbers in one line, before they measure."""

import importlib
import sys

import pytest


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("checkpoints --millions nan", "a number above 0, not 'nan'"),
        ("checkpoints --repeat 0", "a whole number of at least 1, not '0'"),
        ("first_step --towers x", "whole numbers such as 0,2, not 'x'"),
        ("first_step --tasks shapez", "Did you mean 'shapes'?"),
        ("iterator_ends --iterators 0", "a whole number of at least 1, not '0'"),
        ("many_processes 2 -1", "argument N: expected a whole number of at least 1, not '-1'"),
        ("own_steps --steps -1", "a whole number of at least 1, not '-1'"),
        ("serving runs/zh --seconds x", "a number above 0, not 'x'"),
        (
            "serving runs/zh --server no/folder",
            "no/folder: No such file or directory. Expected a path that is there",
        ),
        pytest.param(
            "first_step --tasks made_mlp --towers 0", "Received 0", marks=pytest.mark.slow
        ),
        pytest.param(
            *("first_step --tasks made_mlp --ways mirored", "Did you mean 'mirrored'?"),
            marks=pytest.mark.slow,
        ),
        pytest.param("serving no/run", "the server of ", marks=pytest.mark.slow),
    ],
)
def test_wrong_input_is_one_message(line, message, capsys, monkeypatch):
    name, *arguments = line.split()
    monkeypatch.setattr(sys, "argv", [name, *arguments])
    with pytest.raises(SystemExit) as ended:
        importlib.import_module(f"benchmarks.{name}").main()
    assert ended.value.code == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1

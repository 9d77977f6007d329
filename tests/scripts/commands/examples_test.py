"""Every command's help ends with two examples, which parse."""

import shlex

import pytest

from towers.scripts.main import COMMANDS, build_parser, main


@pytest.mark.parametrize("command", COMMANDS)
def test_help_ends_with_two_examples_that_parse(command, capsys):
    with pytest.raises(SystemExit):
        main([command, "--help"])
    first, second = capsys.readouterr().out.rstrip().splitlines()[-2:]
    assert first.startswith("  ") and second.startswith("  ")
    assert f"towers {command}" in first and f"towers {command}" in second
    for example in (first, second):
        if " completion " not in example:
            assert build_parser().parse_args(shlex.split(example)[1:]).command == command

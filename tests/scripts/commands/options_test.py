"""Options: every one arrives in a dataclass, and defaults stand in the dataclasses alone."""

import argparse
import dataclasses
import typing

import pytest

from towers.scripts.commands.train import USUAL, TrainCommandOptions
from towers.scripts.main import COMMANDS, add_options, build_parser, load_command, main, options_of
from towers.scripts.options.flags import Parser, read_options
from towers.scripts.options.setting import settings_of
from towers.scripts.training.catalogue import chosen_recipe
from towers.scripts.training.options import DeviceOptions, TrainOptions

SCREEN = 42  # Lines.


def names_of(kind):
    """Returns the names of an options dataclass, those of its groups included."""
    names = set()
    for name, own in typing.get_type_hints(kind).items():
        names |= names_of(own) if dataclasses.is_dataclass(own) else {name}
    return names


def parser_of(command):
    """Returns the parser of a command alone."""
    parser = Parser(argument_default=argparse.SUPPRESS)
    add_options(parser, load_command(command))
    return parser


@pytest.mark.parametrize("command", COMMANDS)
def test_every_option_arrives_in_a_dataclass(command):
    parser = parser_of(command)
    options = {action.dest for action in parser._actions} - {"help", "help_all"}
    assert options == names_of(options_of(load_command(command)))


def test_options_that_are_not_given_have_the_defaults_of_the_dataclass():
    given = build_parser().parse_args(["train", "shapes"])
    assert vars(given) == {"command": "train", "recipe": "shapes"}
    options = read_options(TrainOptions, vars(given))
    assert options.devices == DeviceOptions() and options.seed == 0


def test_a_server_takes_ports_that_there_are(capsys):
    with pytest.raises(SystemExit):
        build_parser(["serve"]).parse_args(["serve", "run", "--port", "65536"])
    assert "expected a whole number from 0 to 65535, not '65536'" in capsys.readouterr().err


def test_a_help_says_what_its_own_command_does_with_an_option(capsys):
    for command, meaning in {
        "generate": "T below 1 favours likely words more, above 1 less (default: 1.0)",
        "chat": "(default: 1 with --top-k or --top-p)",
    }.items():
        with pytest.raises(SystemExit):
            main([command, "--help"])
        assert meaning in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize("text", ["1-5", "5", "7-5", "a-b", "-5-7"])
def test_a_wrong_range_of_steps_is_refused(text, capsys):
    with pytest.raises(SystemExit):
        build_parser(["train"]).parse_args(["train", "shapes", f"--profile={text}"])
    assert "expected a range of steps from 2 on, such as 100-110" in capsys.readouterr().err


def test_options_that_are_given_arrive_in_their_group():
    command = ["train", "shapes", "--gpus", "0,2", "--accumulate", "3", "--report-every", "7"]
    options = read_options(TrainOptions, vars(build_parser().parse_args([*command, "--xla"])))
    assert options.devices.gpus == (0, 2)
    assert (options.engine.accumulate, options.engine.xla) == (3, True)
    assert options.periods.report_every == 7


@pytest.mark.parametrize(
    "options, expected",
    [
        ("", False),
        ("--xla", True),
        ("--no-xla", False),
        ("--xla --set fixed_shapes=false", False),
        ("--set fixed_shapes=true", True),
    ],
)
def test_xla_gets_batches_of_a_few_shapes(options, expected):
    given = build_parser().parse_args(["train", "chatbot", *options.split()])
    recipe = chosen_recipe(read_options(TrainCommandOptions, vars(given)))
    assert recipe.fields.fixed_shapes is expected


@pytest.mark.parametrize("command", COMMANDS)
def test_every_option_with_a_value_says_its_default(command):
    parser = parser_of(command)
    valued = [action for action in parser._actions if action.option_strings and action.nargs != 0]
    assert [action.dest for action in valued if "default" not in (action.help or "")] == []


def flags_of(text):
    """Returns the flags that a help explains, each with its line."""
    lines = [line.strip() for line in text.partition("options:\n")[2].splitlines()]
    return [line.split()[0].rstrip(",") for line in lines if line.startswith("-")]


def help_of(command, flag, capsys):
    with pytest.raises(SystemExit) as leaving:
        main([command, flag])
    assert leaving.value.code == 0
    return capsys.readouterr().out


def test_the_help_of_a_training_shows_what_is_usual(capsys):
    usual, every = (help_of("train", flag, capsys) for flag in ("--help", "--help-all"))
    assert len(flags_of(usual)) <= 15
    left = len(flags_of(every)) - len(flags_of(usual))
    assert left > 20 and f"\n{left} more options with --help-all\n" in usual
    assert "more options" not in every and "(t1 0.04 - t2 0.13)" in " ".join(usual.split())
    assert {f"--{name.replace('_', '-')}" for name in USUAL - {"recipe", "overrides"}} <= {
        *flags_of(usual)
    }


@pytest.mark.parametrize("command", COMMANDS)
def test_a_help_fits_one_screen(command, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    assert len(help_of(command, "--help", capsys).splitlines()) <= SCREEN


@pytest.mark.parametrize("command", ["chat", "serve", "evaluate", "generate"])
def test_devices_are_explained_by_help_all(command, capsys):
    usual, every = (help_of(command, flag, capsys) for flag in ("--help", "--help-all"))
    devices = {f"--{name.replace('_', '-')}" for name in settings_of(DeviceOptions)}
    assert not devices & {*flags_of(usual)} and devices <= {*flags_of(every)}


def test_what_the_help_leaves_out_is_still_taken():
    given = build_parser(["train"]).parse_args(["train", "shapes", "--keep-checkpoints", "4"])
    assert read_options(TrainOptions, vars(given)).periods.keep_checkpoints == 4


def test_questions_come_from_one_place(capsys):
    assert main(["chat", "nowhere", "--ask", "a", "--stdin"]) == 2
    assert "--ask and --stdin contradict each other" in capsys.readouterr().err

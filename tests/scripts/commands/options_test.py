"""Options: every one arrives in a dataclass, and defaults stand in the dataclasses alone."""

import argparse
import dataclasses
import typing

import pytest

from towers.scripts.commands.chat import ChatOptions
from towers.scripts.commands.doctor import DoctorOptions
from towers.scripts.commands.download import DownloadOptions
from towers.scripts.commands.estimate import EstimateOptions
from towers.scripts.commands.export import ExportOptions
from towers.scripts.commands.generate import GenerateOptions
from towers.scripts.commands.options import FLAGS, chosen_recipe, read_options
from towers.scripts.commands.predict import PredictOptions
from towers.scripts.commands.prepare import PrepareOptions
from towers.scripts.commands.runs import RunsOptions
from towers.scripts.commands.serve import ServeOptions
from towers.scripts.launching.addresses import LaunchOptions
from towers.scripts.main import COMMANDS, build_parser, load_command
from towers.scripts.serving.limits import Limits
from towers.scripts.timing.options import BenchmarkOptions
from towers.scripts.training.options import (
    DecodingOptions,
    DeviceOptions,
    EvaluateOptions,
    ModelOptions,
    TrainOptions,
)

RECIPE = {"recipe", "overrides", *FLAGS}  # These become a recipe.
TAKEN = {
    "recipes": ({"recipe"}, []),
    "prepare": (RECIPE, [PrepareOptions]),
    "train": (RECIPE | {"config", "dump_config"}, [TrainOptions]),
    "runs": (set(), [RunsOptions]),
    "completion": ({"shell"}, []),
    "estimate": (RECIPE, [EstimateOptions]),
    "doctor": (set(), [DoctorOptions]),
    "predict": (set(), [PredictOptions]),
    "launch": (set(), [LaunchOptions]),
    "evaluate": ({"json"}, [EvaluateOptions, DecodingOptions]),
    "chat": (set(), [ChatOptions, DecodingOptions, ModelOptions, DeviceOptions]),
    "serve": (set(), [ServeOptions, Limits, DecodingOptions, ModelOptions, DeviceOptions]),
    "generate": (set(), [GenerateOptions, ModelOptions, DeviceOptions]),
    "export": (set(), [ExportOptions, DecodingOptions, ModelOptions]),
    "devices": ({"json"}, []),
    "download": (set(), [DownloadOptions]),
    "benchmark": (RECIPE, [BenchmarkOptions]),
}


def names_of(kind):
    """Returns the names of an options dataclass, those of its groups included."""
    names = set()
    for name, own in typing.get_type_hints(kind).items():
        names |= names_of(own) if dataclasses.is_dataclass(own) else {name}
    return names


@pytest.mark.parametrize("command", COMMANDS)
def test_every_option_arrives_in_a_dataclass(command):
    parser = argparse.ArgumentParser(argument_default=argparse.SUPPRESS)
    load_command(command).add_options(parser)
    options = {action.dest for action in parser._actions} - {"help"}
    read, kinds = TAKEN[command]
    assert options <= read.union(*map(names_of, kinds))


def test_options_that_are_not_given_have_the_defaults_of_the_dataclass():
    given = build_parser().parse_args(["train", "shapes"])
    assert vars(given) == {"command": "train", "recipe": "shapes"}
    options = read_options(TrainOptions, given)
    assert options.devices == DeviceOptions() and options.seed == 0


@pytest.mark.parametrize("text", ["1-5", "5", "7-5", "a-b", "-5-7"])
def test_a_wrong_range_of_steps_is_refused(text, capsys):
    with pytest.raises(SystemExit):
        build_parser(["train"]).parse_args(["train", "shapes", f"--profile={text}"])
    assert "expected a range of steps from 2 on, such as 100-110" in capsys.readouterr().err


def test_options_that_are_given_arrive_in_their_group():
    command = ["train", "shapes", "--gpus", "0,2", "--accumulate", "3", "--report-every", "7"]
    options = read_options(TrainOptions, build_parser().parse_args([*command, "--xla"]))
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
    assert chosen_recipe(given).fields.fixed_shapes is expected


@pytest.mark.parametrize("command", COMMANDS)
def test_every_option_with_a_value_says_its_default(command):
    parser = argparse.ArgumentParser(argument_default=argparse.SUPPRESS)
    load_command(command).add_options(parser)
    valued = [action for action in parser._actions if action.option_strings and action.nargs != 0]
    assert [action.dest for action in valued if "default" not in (action.help or "")] == []

"""The commands of `python -m benchmarks`: towers beside other ways to train the same recipe."""

from __future__ import annotations

import argparse
import dataclasses
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from towers.ground.quiet import import_tensorflow_quietly
from towers.scripts.options.flags import Parser, add_flags, read_options
from towers.scripts.options.setting import Amount, Count, File, Names, Parts, Paths, Seed
from towers.scripts.shown import show
from towers.scripts.timing.options import StepTimingOptions, TimingOptions, check_options
from towers.scripts.training.options import BatchedRecipeOptions
from towers.scripts.training.recipe import Recipe
from towers.scripts.wrong_input import WrongInputError, wrong_input


@dataclasses.dataclass(frozen=True)
class ResultsOptions:
    """Where the results go.

    Attributes:
        results: append a line of JSON to this file: the commit, the date, the machine and what was
            measured.
    """

    results: File | None = None


@dataclasses.dataclass(frozen=True)
class CompareOptions(StepTimingOptions):
    """Towers and rivals.

    Attributes:
        against: plain, fit, mirrored, mirrored_fit, and of made-up tasks towers_fit, torch, jax.
    """

    against: Names = ()


@dataclasses.dataclass(frozen=True)
class SlowOptions(TimingOptions):
    """Towers of which one is slow.

    Attributes:
        factor: the last tower takes so many times as long as the others.
    """

    factor: Amount = 5.0


@dataclasses.dataclass(frozen=True)
class InputOptions(TimingOptions):
    """Pipelines over pictures.

    Attributes:
        against: tf_data, keras_directory.
    """

    against: Names = ("tf_data", "keras_directory")


@dataclasses.dataclass(frozen=True)
class TrainingOptions(BatchedRecipeOptions):
    """A training.

    Attributes:
        epochs: passes over the training data (default: the recipe's).
        data: the data's folder, or files (default: datasets/...).
        seed: seed of the initial values and of the order of the data.
    """

    epochs: Count | None = None
    data: Paths | None = None
    seed: Seed = 0


@dataclasses.dataclass(frozen=True)
class FitOptions(TrainingOptions):
    """A training by `fit`.

    Attributes:
        towers: replicas of the model; one is trained without a strategy.
    """

    towers: Parts = 1


@dataclasses.dataclass(frozen=True)
class PlainOptions(TrainingOptions):
    """A training of a plain Keras seq2seq model.

    Attributes:
        minutes: of processor time, at most.
    """

    minutes: Amount = 30.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one benchmark and returns 0; wrong input ends the program with exit code 2."""
    arguments = sys.argv[1:] if arguments is None else arguments
    parser = build_parser()
    given = vars(parser.parse_args(arguments))
    run, kind, _ = COMMANDS[given["command"]]
    options, file = read_options(kind, given), read_options(ResultsOptions, given).results
    import_tensorflow_quietly()
    from benchmarks.made import recipes_of
    from benchmarks.results import append_line

    with parser.refusing(WrongInputError):
        with wrong_input():
            recipes = recipes_of(options)
            if isinstance(options, TimingOptions):
                check_options(options)
            if file is not None:
                Path(file).touch()  # Rather now than after the measurement.
        for recipe in recipes:
            results = run(recipe, options)
            if file is not None:
                append_line(Path(file), [*arguments, recipe.name], results)
    return 0


def build_parser() -> Parser:
    """Returns the parser of the command line."""
    parser = Parser(
        prog="python -m benchmarks",
        description="Measures towers beside other ways to train the same recipe.",
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, (_, kind, text) in COMMANDS.items():
        own = commands.add_parser(
            name, help=text, description=text, argument_default=argparse.SUPPRESS
        )
        add_flags(own, kind, ResultsOptions)
    return parser


def run_compare(recipe: Recipe, options: CompareOptions) -> Any:
    """Prints the time of a step of towers and rivals, and returns the rows.

    Several towers are compared with as many replicas, and with two for one tower.
    """
    from benchmarks.foreign import is_installed
    from benchmarks.results import processor
    from benchmarks.rivals import LIBRARIES, rivals_of
    from towers.scripts.timing.steps import time_steps, towers_of

    steps = options.steps * getattr(recipe.fields, "longer", 1)
    options = dataclasses.replace(options, steps=steps)
    missing = [one for one in options.against if one in LIBRARIES and not is_installed(one)]
    with wrong_input():
        names = [name for name in options.against if name not in missing]
        rivals = rivals_of(names, max(2, *options.towers))
    show(processor())
    rows = time_steps(recipe, options, [*towers_of(options), *rivals])
    for name in missing:
        show(f"| {name} | missing: not installed | | |")
    for row in rows[len(options.towers) :]:
        if row["time_ratio"] < 1:
            show(f"lost: {row['name']} takes {row['time_ratio']:.2f} of {rows[0]['name']}")
    return rows


def run_slow(recipe: Recipe, options: SlowOptions) -> Any:
    """Prints what a slow tower costs the others, and returns the rows."""
    from benchmarks import slow_tower
    from towers.scripts.timing.task import open_task

    with wrong_input():
        slow_tower.check_slow_tower(options.factor, options)
        task = open_task(recipe, options, max(options.towers))
    rows = slow_tower.compare_slow_tower(task, options.factor, options)
    slow_tower.print_table(rows, task, options)
    return rows


def run_input(recipe: Recipe, options: InputOptions) -> Any:
    """Prints how fast each pipeline is, and returns the rates."""
    from benchmarks import input_rivals

    with wrong_input():
        input_rivals.check_input_rivals(recipe, options.against, options.data)
        rates = input_rivals.compare_inputs(recipe, options.against, options)
    input_rivals.print_inputs(rates)
    return {name: [rate._asdict() for rate in own] for name, own in rates.items()}


def run_fit(recipe: Recipe, options: FitOptions) -> Any:
    """Trains by `fit`, prints the metrics of each epoch, and returns them."""
    from benchmarks.fit import train

    return train(recipe, options.towers, options.data, options.seed)


def run_plain(recipe: Recipe, options: PlainOptions) -> Any:
    """Trains a plain Keras seq2seq model, prints how it answers, and returns the metrics."""
    from benchmarks.plain_chatbot import train

    return train(recipe, options.data, options.seed, options.minutes)


COMMANDS: dict[str, tuple[Callable[[Recipe, Any], Any], type[BatchedRecipeOptions], str]] = {
    "compare": (
        run_compare,
        CompareOptions,
        "time a step on towers and in other ways, interleaved",
    ),
    "slow": (
        run_slow,
        SlowOptions,
        "compare synchronous with asynchronous towers while one of them is slow",
    ),
    "input": (
        run_input,
        InputOptions,
        "compare the input of recipe images with other pipelines",
    ),
    "fit": (run_fit, FitOptions, "train a recipe by keras.Model.fit, under MirroredStrategy"),
    "plain": (run_plain, PlainOptions, "train a plain Keras seq2seq model as a chatbot"),
}

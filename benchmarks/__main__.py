"""`python -m benchmarks`: towers beside other ways to train the same recipe."""

from __future__ import annotations

import argparse
import dataclasses
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

from towers.scripts.options.flags import add_flags, read_options
from towers.scripts.options.setting import Amount, Count, File, Flag, Names, Paths, Seed
from towers.scripts.quiet import import_tensorflow_quietly
from towers.scripts.timing.options import BenchmarkOptions, TimingOptions, check_options
from towers.scripts.training.catalogue import chosen_recipe
from towers.scripts.training.options import BatchedRecipeOptions
from towers.scripts.training.recipe import Recipe
from towers.scripts.wrong_input import WrongInputError, wrong_input


@dataclasses.dataclass(frozen=True)
class ResultsOptions:
    """Where the results are kept.

    Attributes:
        results: append a line of JSON to this file: the commit, the date, the machine and what was
            measured.
    """

    results: File | None = None


@dataclasses.dataclass(frozen=True)
class CompareOptions:
    """The rivals of a comparison.

    Attributes:
        against: plain, fit, mirrored, mirrored_fit.
    """

    against: Names = ()


@dataclasses.dataclass(frozen=True)
class SlowOptions:
    """The slow tower.

    Attributes:
        factor: the last tower takes so many times as long.
    """

    factor: Annotated[Amount, "F"] = 5.0


@dataclasses.dataclass(frozen=True)
class InputOptions:
    """The other pipelines.

    Attributes:
        against: tf_data, keras_directory.
    """

    against: Annotated[Names, Flag(required=True)] = ()


@dataclasses.dataclass(frozen=True)
class FitOptions:
    """A training by `fit`.

    Attributes:
        towers: replicas; one is trained without a strategy.
        epochs: passes over the training data (default: the recipe's).
        data: the data's folder, or files (default: datasets/...).
        seed: of the data's order.
    """

    towers: Count = 1
    epochs: Annotated[Count | None, "E"] = None
    data: Paths | None = None
    seed: Seed = 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one benchmark and returns 0; wrong input ends the program with exit code 2."""
    arguments = sys.argv[1:] if arguments is None else arguments
    parser = build_parser()
    given = parser.parse_args(arguments)
    import_tensorflow_quietly()
    try:
        with wrong_input():
            recipe = chosen_recipe(vars(given))
        results = given.run(recipe, given)
        if path := read_options(ResultsOptions, given).results:
            from benchmarks.results import append_line

            with wrong_input(OSError):
                append_line(Path(path), arguments, results)
    except WrongInputError as error:
        parser.error(str(error))
    return 0


def build_parser() -> argparse.ArgumentParser:
    """Returns the parser of the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="Measures towers beside other ways to train the same recipe.",
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def add(
        run: Callable[[Recipe, argparse.Namespace], Any], name: str, text: str, *kinds: type
    ) -> None:
        # Options that are not given are absent: their defaults stand in the options' dataclasses.
        own = commands.add_parser(
            name, help=text, description=text, argument_default=argparse.SUPPRESS
        )
        own.set_defaults(run=run)
        add_flags(own, BatchedRecipeOptions, *kinds, ResultsOptions)

    add(run_compare, "compare", "time a step on towers and in other ways, interleaved",
        TimingOptions, CompareOptions)  # fmt: skip
    add(run_slow, "slow", "compare synchronous with asynchronous towers while one is slow",
        TimingOptions, SlowOptions)  # fmt: skip
    add(run_input, "input", "compare the input of recipe images with other pipelines",
        TimingOptions, InputOptions)  # fmt: skip
    add(run_fit, "fit", "train a recipe by keras.Model.fit, under MirroredStrategy", FitOptions)
    return parser


def timing_options(given: argparse.Namespace) -> BenchmarkOptions:
    """Returns the options of a timing; WrongInputError for what cannot be timed."""
    options = read_options(BenchmarkOptions, given)
    with wrong_input():
        check_options(options)
    return options


def run_compare(recipe: Recipe, given: argparse.Namespace) -> Any:
    """Prints the time of a step of towers and rivals, and returns the rows."""
    from benchmarks.rivals import rivals_of
    from towers.scripts.timing.steps import time_steps, towers_of

    options = timing_options(given)
    with wrong_input():
        rivals = rivals_of(read_options(CompareOptions, given).against, max(2, *options.towers))
    return time_steps(recipe, options, [*towers_of(options), *rivals])


def run_slow(recipe: Recipe, given: argparse.Namespace) -> Any:
    """Prints what a slow tower costs the others, and returns the rows."""
    from benchmarks import slow_tower
    from towers.scripts.timing.task import open_task

    options, factor = timing_options(given), read_options(SlowOptions, given).factor
    with wrong_input():
        slow_tower.check_slow_tower(factor, options)
        task = open_task(recipe, options, max(options.towers))
    rows = slow_tower.compare_slow_tower(task, factor, options)
    slow_tower.print_table(rows, task, options)
    return rows


def run_input(recipe: Recipe, given: argparse.Namespace) -> Any:
    """Prints how fast each pipeline is, and returns the rates."""
    from benchmarks import input_rivals

    options, against = timing_options(given), read_options(InputOptions, given).against
    with wrong_input():
        input_rivals.check_input_rivals(recipe, against, options.data)
        rates = input_rivals.compare_inputs(recipe, against, options)
    input_rivals.print_inputs(rates)
    return {name: [rate._asdict() for rate in own] for name, own in rates.items()}


def run_fit(recipe: Recipe, given: argparse.Namespace) -> Any:
    """Trains by `fit`, prints the metrics of each epoch, and returns them."""
    from benchmarks.fit import train

    options = read_options(FitOptions, given)
    with wrong_input():
        return train(recipe, options.towers, options.data, options.seed)


if __name__ == "__main__":
    sys.exit(main())

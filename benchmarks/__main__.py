"""`python -m benchmarks`: towers beside other ways to train the same recipe."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from towers.scripts.commands.benchmark import add_timing_options
from towers.scripts.commands.option_types import name_list, positive_float, positive_int
from towers.scripts.commands.options import add_recipe_options, chosen_recipe, read_options
from towers.scripts.quiet import import_tensorflow_quietly
from towers.scripts.timing.options import BenchmarkOptions, check_options
from towers.scripts.training.recipe import Recipe
from towers.scripts.wrong_input import WrongInputError, wrong_input


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one benchmark and returns 0; wrong input ends the program with exit code 2."""
    arguments = sys.argv[1:] if arguments is None else arguments
    parser = build_parser()
    given = parser.parse_args(arguments)
    import_tensorflow_quietly()
    try:
        with wrong_input():
            recipe = chosen_recipe(given)
        results = given.run(recipe, given)
        if given.results is not None:
            from benchmarks.results import append_line

            with wrong_input(OSError):
                append_line(given.results, arguments, results)
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

    def add(name: str, run: Callable[[Recipe, argparse.Namespace], Any], text: str) -> Any:
        # Options that are not given are absent: their defaults stand in the options' dataclasses.
        own = commands.add_parser(
            name, help=text, description=text, argument_default=argparse.SUPPRESS
        )
        own.set_defaults(run=run, results=None)
        own.add_argument("--results", type=Path, metavar="FILE",
                         help="append a line of JSON to this file: the commit, the date, the "
                              "machine and what was measured (default: none)")  # fmt: skip
        return own

    compare = add("compare", run_compare, "time a step on towers and in other ways, interleaved")
    add_timing_options(compare)
    compare.add_argument("--against", type=name_list, metavar="NAME,NAME", default=(),
                         help="plain, fit, mirrored, mirrored_fit (default: none)")  # fmt: skip
    slow = add("slow", run_slow, "compare synchronous with asynchronous towers while one is slow")
    add_timing_options(slow)
    slow.add_argument("--factor", type=positive_float, metavar="F", default=5.0,
                      help="the last tower takes so many times as long (default: 5)")  # fmt: skip
    pipelines = add("input", run_input, "compare the input of recipe images with other pipelines")
    add_timing_options(pipelines)
    pipelines.add_argument("--against", type=name_list, metavar="NAME,NAME", required=True,
                           help="tf_data, keras_directory")  # fmt: skip
    fit = add("fit", run_fit, "train a recipe by keras.Model.fit, under MirroredStrategy")
    fit.add_argument("recipe", metavar="RECIPE")
    fit.add_argument("--towers", type=positive_int, metavar="N", default=1,
                     help="replicas; one is trained without a strategy (default: 1)")  # fmt: skip
    fit.add_argument("--epochs", type=positive_int, metavar="E", help="default: the recipe's")
    add_recipe_options(fit)
    fit.set_defaults(data=None, seed=0)
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
        rivals = rivals_of(given.against, max(2, *options.towers))
    return time_steps(recipe, options, [*towers_of(options), *rivals])


def run_slow(recipe: Recipe, given: argparse.Namespace) -> Any:
    """Prints what a slow tower costs the others, and returns the rows."""
    from benchmarks import slow_tower
    from towers.scripts.timing.task import open_task

    options = timing_options(given)
    with wrong_input():
        slow_tower.check_slow_tower(given.factor, options)
        task = open_task(recipe, options, max(options.towers))
    rows = slow_tower.compare_slow_tower(task, given.factor, options)
    slow_tower.print_table(rows, task, options)
    return rows


def run_input(recipe: Recipe, given: argparse.Namespace) -> Any:
    """Prints how fast each pipeline is, and returns the rates."""
    from benchmarks import input_rivals

    options = timing_options(given)
    with wrong_input():
        input_rivals.check_input_rivals(recipe, given.against, options.data)
        rates = input_rivals.compare_inputs(recipe, given.against, options)
    input_rivals.print_inputs(rates)
    return {name: [rate._asdict() for rate in own] for name, own in rates.items()}


def run_fit(recipe: Recipe, given: argparse.Namespace) -> Any:
    """Trains by `fit`, prints the metrics of each epoch, and returns them."""
    from benchmarks.fit import train

    with wrong_input():
        return train(recipe, given.towers, given.data, given.seed)


if __name__ == "__main__":
    sys.exit(main())

"""`towers benchmark`: the time of a recipe's step on several numbers of towers, or of its input."""

from __future__ import annotations

import argparse
import json
from typing import Any

from towers.scripts.commands.option_types import int_list, name_list, positive_int
from towers.scripts.commands.options import (
    add_json_option,
    add_recipe_options,
    add_sharing_option,
    chosen_recipe,
    read_options,
)
from towers.scripts.quiet import import_tensorflow_quietly
from towers.scripts.shown import show
from towers.scripts.timing.options import BenchmarkOptions, check_options
from towers.scripts.training.recipe import Recipe
from towers.scripts.wrong_input import wrong_input


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options of the command."""
    add_timing_options(parser)
    parser.add_argument("--input", type=int_list, nargs="?", const=(), metavar="N,N",
                        help="instead, measure the input: examples/s of the pipeline alone, CPU "
                             "of an example, memory, and the share of a step that waits, on as "
                             "many towers as the largest number says; with numbers, the processor "
                             "time of the input of one of N processes, whose batch is N times the "
                             "recipe's (default: none)")  # fmt: skip
    add_json_option(parser)


def add_timing_options(parser: argparse.ArgumentParser) -> None:
    """Adds the recipe, and what is timed of it for how long."""
    parser.add_argument("recipe", metavar="RECIPE")
    parser.add_argument("--towers", type=int_list, metavar="N,N",
                        help="numbers of towers to compare (default: 1,2)")  # fmt: skip
    add_sharing_option(parser)
    parser.add_argument("--exchange", type=name_list, metavar="NAME,NAME",
                        help="packs, nccl: also time several towers with a copy of the parameters "
                             "each that sum gradients in this way (default: none)")  # fmt: skip
    parser.add_argument("--repetitions", type=positive_int, metavar="R", help="default: 10")
    parser.add_argument("--steps", type=positive_int, metavar="S",
                        help="steps in a repetition (default: 20)")  # fmt: skip
    add_recipe_options(parser)


def run(given: argparse.Namespace) -> int:
    """Prints a table, and with --json one object in the last line."""
    import_tensorflow_quietly()
    from towers.scripts.timing.steps import time_steps, towers_of

    options = read_options(BenchmarkOptions, given)
    with wrong_input():
        recipe = chosen_recipe(given)
        check_options(options)
    if options.input is None:
        results: Any = time_steps(recipe, options, towers_of(options))
    else:
        results = report_input(recipe, options)
    if options.json:
        show(json.dumps({"recipe": recipe.name, "results": results}))
    return 0


def report_input(recipe: Recipe, options: BenchmarkOptions) -> Any:
    """Prints what the input gives and costs, or what that of one process takes; returns it."""
    from towers.scripts.timing import input_report, input_time
    from towers.scripts.timing.task import open_task

    if options.input:
        with wrong_input():
            rows = input_time.measure_input(recipe, options)
        input_time.print_input(rows, recipe, options)
        return [row._asdict() for row in rows]
    with wrong_input():
        task = open_task(recipe, options, max(options.towers))
    report = input_report.measure_input(task, options.steps)
    input_report.print_input(report, task, options.steps)
    return report._asdict()

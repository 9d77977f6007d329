"""`towers benchmark`: the time of a step on towers and in other ways, interleaved in one run."""

from __future__ import annotations

import argparse
import contextlib
import json
from typing import TYPE_CHECKING, Any

from towers.scripts.baselines.options import BenchmarkOptions
from towers.scripts.options.flags import add_flags, read_options
from towers.scripts.quiet import import_tensorflow_quietly
from towers.scripts.shown import show
from towers.scripts.training.catalogue import chosen_recipe
from towers.scripts.training.recipe import Recipe
from towers.scripts.wrong_input import wrong_input

if TYPE_CHECKING:
    from towers.scripts.baselines.opened import Benchmark


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options of the command."""
    add_flags(parser, BenchmarkOptions)


def run(given: argparse.Namespace) -> int:
    """Prints a table, and with --json one object in the last line."""
    import_tensorflow_quietly()
    from towers.scripts.baselines import benchmark, input_rivals, opened

    options = read_options(BenchmarkOptions, given)
    with wrong_input():
        recipe = chosen_recipe(vars(given))
    if options.input:
        return run_input(recipe, options)
    report: Any
    with wrong_input():
        if options.input is not None:
            input_rivals.check_input_rivals(recipe, options)
        benchmark.check_options(options)
    if options.slow or options.input is not None:
        with wrong_input():
            ready = opened.open_benchmark(recipe, options, max(options.towers))
        report = report_slow(ready, options) if options.slow else report_input(ready, options)
    else:
        report = report_steps(recipe, options)
    if options.json:
        show(json.dumps({"recipe": recipe.name, "results": report}))
    return 0


def report_steps(recipe: Recipe, options: BenchmarkOptions) -> list[dict[str, Any]]:
    """Prints the time of a step of each contender, and returns the rows."""
    from towers.scripts.baselines import benchmark, contenders

    with contextlib.ExitStack() as stack:
        with wrong_input():
            runs, rows = stack.enter_context(contenders.open_contenders(recipe, options))
        seconds = benchmark.measure(runs, options.repetitions, options.steps)
    report = benchmark.summarise(seconds, rows)
    benchmark.print_table(report, recipe, options)
    return report


def report_slow(opened: Benchmark, options: BenchmarkOptions) -> Any:
    """Prints what a slow tower costs the others, and returns the numbers."""
    from towers.scripts.baselines import slow_tower

    report = slow_tower.compare_slow_tower(opened.task, opened.devices, opened.rows, options)
    slow_tower.print_table(report, opened.task, options)
    return report


def report_input(opened: Benchmark, options: BenchmarkOptions) -> dict[str, Any]:
    """Prints the input report, or the comparison of pipelines, and returns its numbers."""
    from towers.scripts.baselines import input_report, input_rivals

    if options.against:
        rates = input_rivals.compare_inputs(opened.task.recipe, opened.task.data, options)
        input_rivals.print_inputs(rates)
        return {name: [rate._asdict() for rate in own] for name, own in rates.items()}
    measured = input_report.measure_input(opened, options.steps)
    input_report.print_input(measured, opened, options.steps)
    return measured._asdict()


def run_input(recipe: Recipe, options: BenchmarkOptions) -> int:
    """Prints what the input of one process takes, as `run` prints times."""
    from towers.scripts.baselines.input_time import measure_input, print_input

    with wrong_input():
        rows = measure_input(recipe, options)
    print_input(rows, recipe, options)
    if options.json:
        results = [row._asdict() for row in rows]
        show(json.dumps({"recipe": recipe.name, "results": results}))
    return 0

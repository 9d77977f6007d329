"""`towers benchmark`: the time of a recipe's step on several numbers of towers, or of its input.

towers benchmark shapes --towers 1,2
towers benchmark shapes --towers 2 --exchange packs,nccl
"""

from __future__ import annotations

from typing import Any

from towers.ground.quiet import import_tensorflow_quietly
from towers.scripts.shown import show_json
from towers.scripts.timing.options import BenchmarkOptions, check_options
from towers.scripts.training.catalogue import chosen_recipe
from towers.scripts.training.recipe import Recipe
from towers.scripts.wrong_input import wrong_input

USUAL = {
    *("recipe", "overrides", "batch_size", "towers", "repetitions", "steps", "data", "language"),
    *("exchange", "input", "json"),
}


def run(options: BenchmarkOptions) -> int:
    """Prints a table, and with --json one object in the last line."""
    import_tensorflow_quietly()
    from towers.scripts.timing.steps import time_steps, towers_of

    with wrong_input():
        recipe = chosen_recipe(options)
        check_options(options)
    if options.input is None:
        results: Any = time_steps(recipe, options, towers_of(options))
    else:
        results = report_input(recipe, options)
    if options.json:
        show_json({"recipe": recipe.name, "results": results})
    return 0


def report_input(recipe: Recipe, options: BenchmarkOptions) -> Any:
    """Prints what the input gives and costs, or what that of one process takes; returns it."""
    from towers.scripts.timing import input_report
    from towers.scripts.timing.task import open_task

    if options.input:
        with wrong_input():
            rows = input_report.measure_processes(recipe, options)
        input_report.print_processes(rows, recipe, options)
        return [row._asdict() for row in rows]
    with wrong_input():
        task = open_task(recipe, options, max(options.towers))
    report = input_report.measure_input(task, options.steps)
    input_report.print_input(report, task, options.steps)
    return report._asdict()

"""`towers recipes`: the recipes, and the fields of one."""

from __future__ import annotations

import argparse

from towers.scripts.shown import show
from towers.scripts.training.catalogue import describe_recipe, find_recipe, summaries
from towers.scripts.training.fields import describe_fields
from towers.scripts.wrong_input import wrong_input


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options of the command."""
    parser.add_argument("recipe", metavar="RECIPE", nargs="?", default=None, help="show its fields")


def run(given: argparse.Namespace) -> int:
    """Prints a line for each recipe, or everything about one."""
    if given.recipe is None:
        print_recipes()
        return 0
    with wrong_input():
        description, fields = describe_recipe(given.recipe), find_recipe(given.recipe).fields
    show(f"{description}\n\nFields (--set FIELD=VALUE):")
    for line in describe_fields(fields):
        show(f"  {line}")
    return 0


def print_recipes() -> None:
    """Prints the name and the summary of each recipe."""
    lines = summaries()
    width = max(map(len, lines))
    for name, line in lines.items():
        show(f"{name:<{width}}  {line}")

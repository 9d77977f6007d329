"""`towers recipes`: the recipes, and the fields of one."""

from __future__ import annotations

import argparse

from towers.scripts.quiet import import_tensorflow_quietly
from towers.scripts.shown import show
from towers.scripts.training.catalogue import check_name, describe_recipe, find_recipe, summaries
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
        check_name(given.recipe)
    import_tensorflow_quietly()
    print_recipe(given.recipe)
    return 0


def print_recipes() -> None:
    """Prints the name and the summary of each recipe."""
    lines = summaries()
    width = max(map(len, lines))
    for name, line in lines.items():
        show(f"{name:<{width}}  {line}")


def print_recipe(name: str) -> None:
    """Prints a recipe's description, and its fields with their values, meanings and bounds."""
    show(f"{describe_recipe(name)}\n\nFields (--set FIELD=VALUE):")
    for line in describe_fields(find_recipe(name).fields):
        show(f"  {line}")

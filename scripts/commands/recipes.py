"""`towers recipes`: what can be trained, and what can be set."""

from __future__ import annotations

import argparse
import dataclasses
import inspect
import re

from towers.scripts.quiet import import_tensorflow_quietly
from towers.scripts.training.recipe import check_name, import_recipe, summaries


def run(options: argparse.Namespace) -> int:
    """Prints a line per recipe, or all about one."""
    if options.recipe is None:
        print_recipes()
    else:
        check_name(options.recipe)
        import_tensorflow_quietly()
        print_recipe(options.recipe)
    return 0


def print_recipes() -> None:
    """Prints the name and the summary of each recipe."""
    lines = summaries()
    width = max(map(len, lines))
    for name, line in lines.items():
        print(f"{name:<{width}}  {line}")


def print_recipe(name: str) -> None:
    """Prints a recipe's description, and its fields with what they mean and are by default."""
    module = import_recipe(name)
    print(f"{inspect.getdoc(module)}\n\nFields (--set FIELD=VALUE):")
    meanings = field_meanings(module.Fields)
    for field in dataclasses.fields(module.Fields):
        default = field.default
        value = ",".join(map(str, default)) if isinstance(default, tuple) else default
        print(f"  {field.name}={value}  {meanings[field.name]}")


def field_meanings(fields_class: type) -> dict[str, str]:
    """Returns what the docstrings of a class and its bases say of each field."""
    meanings: dict[str, str] = {}
    for base in reversed(fields_class.__mro__):
        names = "|".join(getattr(base, "__annotations__", {}))
        # A meaning goes on in the lines that are indented further than its name.
        entry = re.compile(rf"^( *)({names}): (.*(?:\n\1 +\S.*)*)", re.MULTILINE)
        for _, name, meaning in entry.findall(inspect.getdoc(base) or ""):
            meanings[name] = " ".join(meaning.split())
    return meanings

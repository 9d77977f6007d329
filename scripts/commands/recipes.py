"""`towers recipes`: the recipes, and the fields of one.

towers recipes
towers recipes chatbot
"""

from __future__ import annotations

import dataclasses
import shutil
import textwrap
from typing import Annotated

from towers.scripts.options.setting import Flag
from towers.scripts.shown import show, table
from towers.scripts.training.catalogue import describe_recipe, find_recipe, summaries
from towers.scripts.training.fields import describe_fields
from towers.scripts.wrong_input import wrong_input

WIDEST = 100  # Columns of a line.


@dataclasses.dataclass(frozen=True)
class RecipesOptions:
    """What is shown.

    Attributes:
        recipe: show its fields.
    """

    recipe: Annotated[str | None, "RECIPE", Flag(is_argument=True, nargs="?")] = None


def run(options: RecipesOptions) -> int:
    """Prints a line for each recipe, or everything about one."""
    if options.recipe is None:
        show("\n".join(table(summaries().items())))
        return 0
    with wrong_input():
        description, fields = describe_recipe(options.recipe), find_recipe(options.recipe).fields
    show(f"{description}\n\nFields (--set FIELD=VALUE):")
    width = min(WIDEST, shutil.get_terminal_size().columns)
    for line in describe_fields(fields):
        show(textwrap.fill(line, width, initial_indent="  ", subsequent_indent=" " * 6))
    return 0

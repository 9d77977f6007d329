"""`towers prepare`: makes the cache of a corpus, and prints a summary of it."""

from __future__ import annotations

import argparse
import dataclasses

from towers.scripts.commands.option_types import number_of_parts
from towers.scripts.commands.options import (
    add_data_options,
    add_text_options,
    check_contradictions,
    chosen_recipe,
    read_options,
)
from towers.scripts.quiet import import_tensorflow_quietly
from towers.scripts.shown import show
from towers.scripts.wrong_input import WrongInputError, wrong_input


@dataclasses.dataclass(frozen=True)
class PrepareOptions:
    """The preparation of a corpus.

    Attributes:
        data: files and folders, None for the embedded corpus.
        processes: how many tokenise, None for one per core.
    """

    data: tuple[str, ...] | None = None
    processes: int | None = None


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options of the command."""
    parser.description = (
        "Turns a corpus into the cache that the training reads. `towers train` does it too if it "
        "is needed."
    )
    parser.add_argument("recipe", metavar="RECIPE", help="such as chatbot")
    parser.add_argument("--processes", type=number_of_parts, metavar="N",
                        help="default: one per core")  # fmt: skip
    add_data_options(parser)
    add_text_options(parser)


def run(given: argparse.Namespace) -> int:
    """Prepares the data of a recipe unless it is prepared already, and prints a summary."""
    import_tensorflow_quietly()
    from towers.scripts.training.session import data_paths

    options = read_options(PrepareOptions, given)
    printed: list[str] = []

    def write(line: str) -> None:
        show(line)
        printed.append(line)

    with wrong_input():
        check_contradictions(given)
        recipe = chosen_recipe(given)
        if recipe.prepare is None:
            raise WrongInputError(f"Recipe {recipe.name} has nothing to prepare.")
        paths = data_paths(recipe, options.data)
        corpus = recipe.prepare(recipe.fields, paths, processes=options.processes, write=write)
    for line in corpus.summary:
        if line not in printed:  # The preparation of a new corpus prints these lines itself.
            show(line)
    show(f"prepared in {corpus.folder}")
    return 0

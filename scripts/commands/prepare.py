"""`towers prepare`: makes the cache of a corpus, and prints a summary of it."""

from __future__ import annotations

import argparse
import dataclasses

from towers.scripts.options.flags import add_flags, read_options
from towers.scripts.options.setting import Parts, Paths
from towers.scripts.quiet import import_tensorflow_quietly
from towers.scripts.shown import show
from towers.scripts.training.catalogue import check_contradictions, chosen_recipe
from towers.scripts.training.options import RecipeOptions
from towers.scripts.wrong_input import WrongInputError, wrong_input


@dataclasses.dataclass(frozen=True)
class PrepareOptions(RecipeOptions):
    """The preparation of a corpus.

    Attributes:
        data: files and folders (default: the embedded corpus).
        processes: number of processes that tokenise (default: one per core).
    """

    data: Paths | None = None
    processes: Parts | None = None


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options of the command."""
    parser.description = (
        "Turns a corpus into the cache that the training reads. `towers train` does it too if it "
        "is needed."
    )
    add_flags(parser, PrepareOptions)


def run(given: argparse.Namespace) -> int:
    """Prepares the data of a recipe unless it is prepared already, and prints a summary."""
    options = read_options(PrepareOptions, given)
    with wrong_input():
        check_contradictions(vars(given))
        recipe = chosen_recipe(vars(given))
    if recipe.prepare is None:
        raise WrongInputError(f"Recipe {recipe.name} has nothing to prepare.")
    import_tensorflow_quietly()
    from towers.scripts.training.session import data_paths

    printed: list[str] = []

    def write(line: str) -> None:
        show(line)
        printed.append(line)

    with wrong_input():
        paths = data_paths(recipe, options.data)
        corpus = recipe.prepare(recipe.fields, paths, processes=options.processes, write=write)
    for line in corpus.summary:
        if line not in printed:  # The preparation of a new corpus prints these lines itself.
            show(line)
    show(f"prepared in {corpus.folder}")
    return 0

"""`towers prepare`: makes the cache of a corpus, and says what is in it."""

from __future__ import annotations

import argparse

from towers.scripts.training.recipe import chosen_recipe
from towers.scripts.training.session import data_paths


def run(options: argparse.Namespace) -> int:
    """Prepares the data of a recipe, or finds that it was prepared, and prints a summary."""
    recipe = chosen_recipe(options)
    if recipe.prepare is None:
        raise ValueError(f"Recipe {recipe.name} has nothing to prepare.")
    told: list[str] = []

    def tell(line: str) -> None:
        print(line)
        told.append(line)

    paths = data_paths(recipe, options.data)
    corpus = recipe.prepare(recipe.fields, paths, processes=options.processes, write=tell)
    for line in corpus.summary:
        if line not in told:  # It is told of a new corpus while that is prepared.
            print(line)
    print(f"prepared in {corpus.folder}")
    return 0

"""`towers prepare`: makes the cache of a corpus, and prints a summary of it.

Turns a corpus into the cache that the training reads. `towers train` does it too if it is needed.

    towers prepare chatbot --language zh --data my.conv
    towers prepare chatbot --data dialogues/ --processes 4
"""

from __future__ import annotations

import dataclasses

from towers.ground.quiet import import_tensorflow_quietly
from towers.scripts.options.setting import Parts, Paths, values_of
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


def run(options: PrepareOptions) -> int:
    """Prepares the data of a recipe unless it is prepared already, and prints a summary."""
    with wrong_input():
        check_contradictions(values_of(options))
        recipe = chosen_recipe(options)
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

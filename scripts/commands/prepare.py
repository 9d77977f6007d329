"""`towers prepare`: makes the cache of a corpus, and prints a summary of it.

Turns a corpus into the cache that training reads. `towers train` also does this if it is needed.

    towers prepare chatbot --language zh --data my.conv
    towers prepare chatbot --data dialogues/ --processes 4
    towers prepare chatbot --data chats.jsonl --show 5 --json
"""

from __future__ import annotations

import dataclasses
import json
from typing import Annotated, Any

from towers.ground.quiet import import_tensorflow_quietly
from towers.scripts.options.setting import Count, Parts, Paths, values_of
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
        show: print the first N examples as the model will see them (default: none).
        json: print a JSON object for each example, and one about the data as the last line.
    """

    data: Paths | None = None
    processes: Parts | None = None
    show: Annotated[Count | None, "N"] = None
    json: bool = False


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
    remarks = corpus.remarks(recipe.fields)
    for line in [*remarks, f"prepared in {corpus.folder}"]:
        show(line)
    for example in corpus.examples(options.show) if options.show else []:
        show(as_json(example) if options.json else " -> ".join(map(shown, example.values())))
    if options.json:
        about = {"recipe": recipe.name, "folder": str(corpus.folder)}
        show(as_json({**about, "summary": [*corpus.summary, *remarks], **corpus.facts}))
    return 0


def shown(value: Any) -> str:
    """Returns a text, or the turns of a question with bars between them."""
    return " | ".join(value) if isinstance(value, list) else str(value)


def as_json(value: dict[str, Any]) -> str:
    """Returns an object in one line."""
    return json.dumps(value, ensure_ascii=False)

"""`towers estimate`: the size of a recipe's training, before it is trained."""

from __future__ import annotations

import argparse
import dataclasses
import json

from towers.scripts.commands.option_types import positive_int
from towers.scripts.commands.options import (
    add_json_option,
    add_recipe_options,
    add_sharing_option,
    chosen_recipe,
    read_options,
)
from towers.scripts.quiet import import_tensorflow_quietly
from towers.scripts.shown import show, table
from towers.scripts.training.options import DeviceOptions, TrainOptions
from towers.scripts.wrong_input import wrong_input


@dataclasses.dataclass(frozen=True)
class EstimateOptions:
    """The training to estimate.

    Attributes:
        towers: how many.
        gpus_per_tower: devices that share the layers of each.
        precision: as `towers train` takes it.
        data: the folder or the files, None for the recipe's default.
        seed: of the data's order.
        json: whether the last line is one JSON object.
    """

    towers: int = 2
    gpus_per_tower: int = 1
    precision: str = "float32"
    data: tuple[str, ...] | None = None
    seed: int = 0
    json: bool = False


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options of the command."""
    parser.description = (
        "Prints how many parameters a recipe has, what its variables, optimizer and gradients take "
        "on each device, and how many bytes move in a step. Activations "
        "and the rows of looked-up tables come on top."
    )
    parser.add_argument("recipe", metavar="RECIPE", help="see `towers recipes`")
    parser.add_argument("--towers", type=positive_int, metavar="N",
                        help="how many (default: 2)")  # fmt: skip
    add_sharing_option(parser)
    parser.add_argument("--precision", choices=("float32", "float64", "bfloat16", "float16"),
                        help="default: float32")  # fmt: skip
    add_recipe_options(parser)
    add_json_option(parser)


def run(given: argparse.Namespace) -> int:
    """Prints the sizes, and a table of the placements."""
    import_tensorflow_quietly()
    from towers.scripts.diagnosis import sizes
    from towers.scripts.training.session import open_session

    options = read_options(EstimateOptions, given)
    with wrong_input():
        session = open_session(
            chosen_recipe(given),
            data=options.data,
            devices=DeviceOptions(towers=1, parameters="cpu"),
            seed=options.seed,
            precision=options.precision,
        )
        measured = sizes.measure(session, read_options(TrainOptions, given), options.gpus_per_tower)
    found = sizes.add_sizes(measured)
    show(
        f"{session.recipe.name}: {found.parameters:,} parameters, variables "
        f"{sizes.megabytes(found.variables)}, optimizer {sizes.megabytes(found.slots)}, "
        f"{session.data.train.steps_per_epoch:,} steps in an epoch"
    )
    for number, stage in enumerate(measured):
        if len(measured) > 1:
            show(f"device {number} of each tower: {stage.parameters:,} parameters")
        show("\n".join(table(sizes.rows(list(sizes.needs(stage, options.towers))))))
    show("Activations and the rows of looked-up tables come on top: they grow with the batch.")
    if options.json:
        show(json.dumps(sizes.as_json(measured, options.towers)))
    return 0

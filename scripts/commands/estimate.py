"""`towers estimate`: the memory and data transfer of a training, before you start it.

Prints how many parameters a recipe has, how much memory its variables, optimizer and gradients need
on each device, how many bytes move in a step, and how much memory activations need on each tower.
Rows that are looked up in tables are not counted.

    towers estimate shapes --towers 4
    towers estimate chatbot --set hidden_size=512 --json
"""

from __future__ import annotations

import dataclasses

from towers.ground.quiet import import_tensorflow_quietly
from towers.scripts.options.setting import Count, Parts, Paths, Seed
from towers.scripts.shown import show, show_json, table
from towers.scripts.training.catalogue import chosen_recipe
from towers.scripts.training.options import (
    BatchedRecipeOptions,
    DeviceOptions,
    EngineOptions,
    Precision,
    TrainOptions,
)
from towers.scripts.wrong_input import wrong_input


@dataclasses.dataclass(frozen=True)
class EstimateOptions(BatchedRecipeOptions):
    """The training to estimate.

    Attributes:
        towers: number of towers.
        gpus_per_tower: devices that each tower's layers are split between.
        precision: as `towers train` takes it.
        data: the data's folder, or files (default: datasets/...).
        seed: seed of the order of the data.
        json: print one JSON object as the last line.
    """

    towers: Count = 2
    gpus_per_tower: Parts = 1
    precision: Precision = "float32"
    data: Paths | None = None
    seed: Seed = 0
    json: bool = False


def run(options: EstimateOptions) -> int:
    """Prints the sizes, and a table of the placements."""
    import_tensorflow_quietly()
    from towers.scripts.diagnosis import sizes
    from towers.scripts.diagnosis.activations import count_activations
    from towers.scripts.training.session import open_session

    with wrong_input():
        session = open_session(
            chosen_recipe(options),
            data=options.data,
            devices=DeviceOptions(towers=1, parameters="cpu"),
            seed=options.seed,
            precision=options.precision,
        )
        training = TrainOptions(
            engine=EngineOptions(precision=options.precision), seed=options.seed
        )
        measured = sizes.measure(session, training, options.gpus_per_tower)
        activations = count_activations(session, options.towers)
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
    if activations is None:
        show("Activations are extra; they grow with the batch.")
    else:
        bound = "at least" if activations.uncounted else "at most"  # What loops keep is unknown.
        show(
            f"Activations are extra: {bound} about {sizes.megabytes(activations.peak)} for a "
            f"tower's {activations.rows} rows."
        )
    if options.json:
        counted = {"activations": activations and activations._asdict()}
        show_json({**sizes.as_json(measured, options.towers), **counted})
    return 0

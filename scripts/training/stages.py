"""The stages of a recipe's model, where each tower has several devices."""

from __future__ import annotations

import math
from collections.abc import Callable

import keras

import towers
from towers.scripts.training.recipe import Recipe

Blocks = list[list[keras.layers.Layer]]


def share_layers(
    recipe: Recipe, model: keras.Model, placement: towers.Placement
) -> towers.Placement:
    """Returns the placement of the model's layers; its variables move to the devices of theirs.

    With one device a tower, it is the placement as it was.

    Raises:
        ValueError: the model has fewer parts than the towers have devices.
    """
    if placement.num_stages == 1:
        return placement
    try:
        stage_of = towers.steps.stages_by_size(blocks_of(model), placement.num_stages)
    except ValueError as error:
        raise ValueError(
            f"--gpus-per-tower {placement.num_stages} cannot share the layers of {recipe.name} "
            f"with these fields. {error}"
        ) from error
    staged = placement.with_stages(stage_of)
    staged.place(model)
    return staged


def stage_of_variables(
    recipe: Recipe, model: keras.Model, num_stages: int
) -> Callable[[keras.Variable], int]:
    """Returns the function from variables to stages; nothing moves. Errors as in `share_layers`."""
    tower = [f"/CPU:{number}" for number in range(num_stages)]
    stages = share_layers(recipe, model, towers.Placement([tower], "cpu")).stages(model)
    return (lambda _: 0) if stages is None else stages.of_variable


def blocks_of(model: keras.Model) -> Blocks:
    """Returns the layers of a model in the order in which they run; blocks belong together.

    Text models tell it themselves. Keras lists those of image networks in this order; a network
    within a network is taken apart.
    """
    if hasattr(model, "layers_in_order"):
        blocks: Blocks = model.layers_in_order()
        return blocks
    blocks = []
    for layer in model.layers:
        is_network = isinstance(layer, keras.Model) and layer.layers
        blocks += blocks_of(layer) if is_network else [[layer]]
    return blocks


def describe_stages(model: keras.Model, placement: towers.Placement) -> list[str]:
    """Returns a line for each stage: its layers with parameters, and how many these are."""
    stages = placement.stages(model)
    if stages is None:
        return []
    lines = []
    for number in range(placement.num_stages):
        names = [
            layer.name
            for block in blocks_of(model)
            for layer in block
            if layer.trainable_variables and stages.of_layer(layer) == number
        ]
        own = [one for one in model.trainable_variables if stages.of_variable(one) == number]
        count = sum(math.prod(one.shape) for one in own)
        devices = ", ".join(
            towers.devices.short_device(group[number]) for group in placement.groups
        )
        lines.append(f"stage {number} on {devices}: {', '.join(names)} ({count:,} parameters)")
    return lines

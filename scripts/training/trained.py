"""A run's trained model: found, made and filled without the data that it was trained on."""

from __future__ import annotations

import argparse
import dataclasses
from typing import Any, NamedTuple

import keras

from towers.run.checkpoints import Checkpoint, CheckpointFolder, restore
from towers.scripts.training.recipe import Data, Recipe, restore_recipe
from towers.scripts.training.run_directory import RunDirectory
from towers.scripts.training.session import choose_devices
from towers.step.parameters import SharedVariables
from towers.step.precision import set_precision


class OpenModel(NamedTuple):
    """A run's trained model without its data.

    Attributes:
        directory: the run's.
        recipe: the recipe with the run's fields.
        model: the model with the checkpoint's values.
        text: what turns text into ids and back.
        description: a line about where all this comes from.
    """

    directory: RunDirectory
    recipe: Recipe
    model: keras.Model
    text: Any
    description: str


def open_model(
    run_dir: str, checkpoint: str, options: argparse.Namespace, *, command: str = "chat"
) -> OpenModel:
    """Returns the model of a run that has text, for talking to it.

    Args:
        run_dir: the run's directory.
        checkpoint: `best` or `latest`.
        options: the command line; its devices are used if it has any.
        command: how the model is to speak: chat (as an exported one does) or generate.
    """
    directory = RunDirectory(run_dir)
    record = directory.read()
    recipe = restore_recipe(record["recipe"], record["fields"])
    if recipe.load_text is None or not directory.text.exists():
        raise ValueError(f"{directory.path} is a run of {recipe.name}, which has no text to say.")
    if recipe.command != command:
        raise ValueError(
            f"{directory.path} is a run of {recipe.name}, which speaks with "
            f"`towers {recipe.command} {directory.path}`."
        )
    chosen = choose_checkpoint(directory, checkpoint)
    if hasattr(options, "gpus"):
        choose_devices(options)
    set_precision(record["precision"])
    text = recipe.load_text(directory.text)
    model = recipe.make_model(recipe.fields, Data(None, None, text))
    restore_model(model, chosen)
    description = f"{recipe.name}, step {chosen.step} of {directory.path}"
    return OpenModel(directory, recipe, model, text, description)


def choose_checkpoint(directory: RunDirectory, which: str) -> Checkpoint:
    """Returns the best checkpoint of a run, or its latest."""
    folder = CheckpointFolder(directory.checkpoints)
    checkpoint = folder.best() if which == "best" else None
    checkpoint = checkpoint or folder.latest()
    if checkpoint is None:
        raise ValueError(
            f"{directory.path} has no checkpoint yet. Train longer, or save more often with "
            "--checkpoint-every."
        )
    return checkpoint


def restore_model(model: keras.Model, checkpoint: Checkpoint) -> None:
    """Puts the checkpoint's values into the model; the optimizer's are not needed."""
    variables = SharedVariables(model.variables, []).all
    model_only = {"variables": checkpoint.groups.get("variables", [])}
    restore(dataclasses.replace(checkpoint, groups=model_only), {"variables": variables})

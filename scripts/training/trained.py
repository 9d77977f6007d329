"""The trained model of a run, without the data that it was trained on."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import keras

from towers.checkpoints import Checkpoint, CheckpointFolder, DamagedCheckpointError, restore
from towers.engine import SharedVariables
from towers.scripts.training.catalogue import restore_recipe
from towers.scripts.training.options import DeviceOptions, ModelOptions
from towers.scripts.training.recipe import Data, Recipe, SpecialIds
from towers.scripts.training.run_directory import RunDirectory
from towers.scripts.training.session import choose_devices
from towers.steps import set_precision


class OpenModel(NamedTuple):
    """A run's trained model without its data.

    Attributes:
        directory: the run's.
        recipe: the recipe with the run's fields.
        model: the model with the checkpoint's values.
        text: the codec between text and ids.
        special_ids: the ids of the codec that stand for no word.
        description: a line that names the recipe, the step and the run.
        about: what the run recorded about its data; older runs recorded the files' names alone.
    """

    directory: RunDirectory
    recipe: Recipe
    model: keras.Model
    text: Any
    special_ids: SpecialIds
    description: str
    about: dict[str, Any]


def open_model(
    options: ModelOptions, devices: DeviceOptions | None = None, *, command: str = "chat"
) -> OpenModel:
    """Returns the model of a run that has text.

    Args:
        options: the run and its checkpoint.
        devices: the choice of the devices; by default the devices stay as they are.
        command: the command that lets the model speak: chat (also for an export) or generate.

    Raises:
        ValueError: the run has no checkpoint, or no model for this command.
    """
    directory = RunDirectory(options.run_dir)
    record = directory.read()
    recipe = restore_recipe(record["recipe"], record["fields"])
    if recipe.load_text is None or recipe.special_ids is None or not directory.text.exists():
        raise ValueError(f"{directory.path} is a run of {recipe.name}, which has no text.")
    if recipe.command != command:
        raise ValueError(
            f"{directory.path} is a run of {recipe.name}, which speaks with "
            f"`towers {recipe.command} {directory.path}`."
        )
    chosen = choose_checkpoint(directory, options.checkpoint)
    if devices is not None:
        choose_devices(devices)
    set_precision(record["precision"])
    text = recipe.load_text(directory.text)
    model = recipe.make_model(recipe.fields, Data(None, None, text))
    restore_model(model, chosen)
    description = f"{recipe.name}, step {chosen.step} of {directory.path}"
    about = record.get("about") or {"files": record["data"] or []}
    return OpenModel(directory, recipe, model, text, recipe.special_ids, description, about)


def choose_checkpoint(directory: RunDirectory, which: str) -> Checkpoint:
    """Returns the best checkpoint of a run, or its latest."""
    folder = CheckpointFolder(directory.checkpoints)
    try:
        checkpoint = folder.best() if which == "best" else None
    except DamagedCheckpointError as error:
        raise ValueError(f"{error} --checkpoint latest takes the one saved last.") from error
    checkpoint = checkpoint or folder.latest()
    if checkpoint is None:
        raise ValueError(
            f"{directory.path} has no checkpoint yet. Train longer, or save more often with "
            "--checkpoint-every."
        )
    return checkpoint


def restore_model(model: keras.Model, checkpoint: Checkpoint) -> None:
    """Assigns the checkpoint's values to the model; the optimizer's are not needed."""
    variables = SharedVariables(model.variables, []).all
    model_only = {"variables": checkpoint.groups.get("variables", [])}
    restore(dataclasses.replace(checkpoint, groups=model_only), {"variables": variables})

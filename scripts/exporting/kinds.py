"""From a run to what exports it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from towers.scripts.exporting.chatbots import chatbot_writer
from towers.scripts.exporting.classifiers import classifier_writer
from towers.scripts.exporting.language_models import language_model_writer
from towers.scripts.training.catalogue import find_recipe
from towers.scripts.training.options import DecodingOptions, ModelOptions
from towers.scripts.training.run_directory import RunDirectory
from towers.scripts.training.saved_run import open_model


def choose_writer(options: ModelOptions, decoding: DecodingOptions) -> Callable[[Path], str]:
    """Returns `write(folder)` for a run; it returns a line about what it wrote.

    Raises:
        ValueError: the run has no checkpoint, or the options of decoding do not fit it.
        OSError: a file of the data cannot be read.
    """
    recipe = find_recipe(RunDirectory(options.run_dir).read()["recipe"])
    if recipe.load_text is None:
        if decoding != DecodingOptions():
            raise ValueError(f"A run of {recipe.name} has no text: leave out the decoding options.")
        return classifier_writer(options)
    opened = open_model(options, command=recipe.command)
    if recipe.command == "chat":
        return chatbot_writer(opened, decoding)
    return language_model_writer(opened, decoding)

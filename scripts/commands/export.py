"""`towers export`: a chatbot as a SavedModel with everything that it needs to answer."""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from towers.data.text.durable import publish
from towers.scripts.commands.options import add_decoding_options, add_model_options, read_options
from towers.scripts.quiet import import_tensorflow_quietly
from towers.scripts.training.options import ModelOptions
from towers.scripts.wrong_input import WrongInputError, wrong_input

if TYPE_CHECKING:
    import keras

    from towers.models.decoding import Decoding
    from towers.scripts.training.trained import OpenModel

ANSWER_PROGRAM = Path(__file__).parents[1] / "chatbot" / "exported" / "answer.py"


@dataclasses.dataclass(frozen=True)
class ExportOptions:
    """The place of the export.

    Attributes:
        output: the folder, None for RUN_DIR/export.
    """

    output: str | None = None


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options of the command."""
    add_model_options(parser)
    parser.add_argument("--output", metavar="DIR", help="default: RUN_DIR/export")
    add_decoding_options(parser)


def run(given: argparse.Namespace) -> int:
    """Writes the export and prints how to use it."""
    import_tensorflow_quietly()
    from towers.scripts.chatbot.answerer import DecodingOptions, make_decoding
    from towers.scripts.training.trained import open_model

    with wrong_input():
        opened = open_model(read_options(ModelOptions, given))
        max_length = opened.recipe.fields.max_answer_length
        decoding = make_decoding(read_options(DecodingOptions, given), max_length)
    folder = Path(read_options(ExportOptions, given).output or opened.directory.path / "export")
    if folder.exists():
        raise WrongInputError(
            f"{folder} exists already. Remove it, or choose another with --output."
        )
    unfinished = folder.with_name(f".{folder.name}.{os.getpid()}.tmp")
    try:
        with wrong_input(OSError):  # Such as a folder that cannot be made.
            leave_out_cudnn(opened.model)
            write_export(opened, decoding, unfinished)
            publish(unfinished, folder)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    print(f"exported to {folder}; ask it with: python {folder / ANSWER_PROGRAM.name}")
    return 0


def write_export(opened: OpenModel, decoding: Decoding, folder: Path) -> None:
    """Writes the model, the text settings, the code for both and a program that answers."""
    import tensorflow as tf

    from towers.data import text
    from towers.scripts.chatbot.answerer import decode_questions

    fields = opened.recipe.fields
    module = tf.Module()
    module.weights = [variable.value for variable in opened.model.variables]
    module.answer = decode_questions(
        opened.model, decoding, opened.special_ids, opened.text.vocabulary.copies
    )
    folder.mkdir(parents=True)  # Its error says more than TensorFlow's.
    tf.saved_model.save(module, str(folder / "model"), signatures={"answer": module.answer})
    opened.text.save(folder / "vocabulary")
    copy_code(Path(text.__file__).parent, folder / "text")
    shutil.copy(ANSWER_PROGRAM, folder / ANSWER_PROGRAM.name)
    settings = {
        "max_question_length": fields.max_question_length,
        "context": fields.context,
        "padding_id": opened.special_ids.padding,
        "unknown_id": opened.special_ids.unknown,
    }
    (folder / "settings.json").write_text(json.dumps(settings, indent=2) + "\n", encoding="utf-8")


def leave_out_cudnn(model: keras.Model) -> None:
    """Makes the recurrent layers use ops that every device has.

    Where there is a GPU, Keras builds their graph of cuDNN's kernels, which no CPU can run.
    """
    for layer in model.layers:
        if hasattr(layer, "use_cudnn"):
            layer.use_cudnn = False


def copy_code(source: Path, target: Path) -> None:
    """Copies the modules of a package."""
    target.mkdir()
    for module in source.glob("*.py"):
        shutil.copy(module, target / module.name)

"""`towers export`: a chatbot as a SavedModel with all that it needs to answer."""

from __future__ import annotations

import argparse
import json
import os
import shutil
from pathlib import Path

import keras
import tensorflow as tf

from towers.data import text
from towers.data.text.durable import publish
from towers.scripts.chatbot.answerer import decode_questions, decoding_from
from towers.scripts.training.trained import OpenModel, open_model

ANSWER_PROGRAM = Path(__file__).parents[1] / "chatbot" / "exported" / "answer.py"


def run(options: argparse.Namespace) -> int:
    """Writes the export and says how to use it."""
    opened = open_model(options.run_dir, options.checkpoint, options)
    leave_out_cudnn(opened.model)
    folder = Path(options.output or opened.directory.path / "export")
    if folder.exists():
        raise ValueError(f"{folder} exists already. Remove it, or choose another with --output.")
    unfinished = folder.with_name(f".{folder.name}.{os.getpid()}.tmp")
    try:
        write_export(opened, options, unfinished)
        publish(unfinished, folder)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    print(f"exported to {folder}; ask it with: python {folder / ANSWER_PROGRAM.name}")
    return 0


def write_export(opened: OpenModel, options: argparse.Namespace, folder: Path) -> None:
    """Writes the model, the text settings, the code for both and a program that answers."""
    fields = opened.recipe.fields
    decoding = decoding_from(options, fields.max_answer_length)
    module = tf.Module()
    module.weights = [variable.value for variable in opened.model.variables]
    module.answer = decode_questions(opened.model, decoding)
    folder.mkdir(parents=True)  # Its error says more than TensorFlow's.
    tf.saved_model.save(module, str(folder / "model"), signatures={"answer": module.answer})
    opened.text.save(folder / "vocabulary")
    copy_code(Path(text.__file__).parent, folder / "text")
    shutil.copy(ANSWER_PROGRAM, folder / ANSWER_PROGRAM.name)
    settings = {"max_question_length": fields.max_question_length, "context": fields.context}
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

"""Chatbots: the decoding is a part of the model, and a program asks it."""

from __future__ import annotations

import dataclasses
import functools
import shutil
from collections.abc import Callable
from pathlib import Path

from towers import data, ground
from towers.data import text
from towers.models.decoding import Decoding
from towers.scripts.chatbot.answerer import decode_questions, make_decoding
from towers.scripts.exporting.folders import write_model, write_settings
from towers.scripts.training.options import DecodingOptions, SearchOptions
from towers.scripts.training.saved_run import OpenModel

PROGRAM = Path(__file__).parent / "programs" / "answer.py"


def chatbot_writer(opened: OpenModel, options: SearchOptions) -> Callable[[Path], str]:
    """Returns `write(folder)`, which exports a chatbot and returns a line about its program.

    Raises:
        ValueError: the options are impossible, or the model answers no questions.
    """
    fields = opened.recipe.fields
    if fields.direction != "forward":
        raise ValueError(
            f"{opened.directory.path} was trained with direction={fields.direction}, to rerank the "
            "answers of a chatbot. Export the chatbot's own run."
        )
    decoding = make_decoding(
        DecodingOptions(**dataclasses.asdict(options)), fields.max_answer_length
    )
    return functools.partial(write_chatbot, opened, decoding)


def write_chatbot(opened: OpenModel, decoding: Decoding, folder: Path) -> str:
    """Writes the model, the text settings, the code for both and a program that answers.

    The signature `answer` takes `questions`, int32 [batch, length], padded with 0, and `seed`,
    int64 [2], and returns ids, scores and lengths as `towers.models.decoding.Decoded` has them.
    """
    fields = opened.recipe.fields
    answer = decode_questions(
        opened.model, decoding, opened.special_ids, opened.text.vocabulary.copies
    )
    write_model(opened.model, {"answer": answer}, folder)
    opened.text.save(folder / "vocabulary")
    copy_code(folder)
    shutil.copy(PROGRAM, folder / PROGRAM.name)
    settings = {
        "max_question_length": fields.max_question_length,
        "context": fields.context,
        "padding_id": opened.special_ids.padding,
    }
    write_settings(settings, folder)
    return f"ask it with: python {{folder}}/{PROGRAM.name}"


def copy_code(folder: Path) -> None:
    """Copies the modules that read and write text, under the names that they have in `towers`."""
    for package in (ground, data, text):
        source = Path(str(package.__file__)).parent
        target = folder.joinpath(*package.__name__.split("."))
        target.mkdir(parents=True)
        for module in [source / "__init__.py"] if package is data else source.glob("*.py"):
            shutil.copy(module, target / module.name)
    (folder / "towers" / "__init__.py").touch()

"""Two files of lines: a question on each line of one, its answer on the same line of the other."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator
from pathlib import Path

from towers.data.reading.dialogue_file import Dialogue, DialogueFile

# How names differ, of questions and of answers.
ENDS = (
    *((".enc", ".dec"), (".src", ".tgt"), (".from", ".to"), ("_post", "_response"), (".q", ".a")),
    *(("post.txt", "response.txt"), ("source.txt", "target.txt"), (".question", ".answer")),
    *(("question.txt", "answer.txt"), ("enc.txt", "dec.txt"), ("src.txt", "tgt.txt")),
)


def answers_beside(path: Path) -> Path | None:
    """Returns the file of answers beside a file of questions, None if its name tells of none."""
    return next(filter(None, (_partner(path, *ends) for ends in ENDS)), None)


def has_questions_beside(path: Path) -> bool:
    """Returns whether a file has the answers to another one beside it."""
    return any(_partner(path, answer, question) for question, answer in ENDS)


def _partner(path: Path, end: str, other: str) -> Path | None:
    """Returns the file whose name has another end, if the name has this one and it is there."""
    partner = path.with_name(path.name.removesuffix(end) + other)
    return partner if path.name.endswith(end) and partner.is_file() else None


def fits(file: DialogueFile) -> bool:
    """Returns whether a file has its answers in another one."""
    return bool(file.layout.answers) or answers_beside(file.path) is not None


def read(file: DialogueFile) -> Iterator[Dialogue]:
    """Yields the pair of each line.

    Raises:
        ValueError: there are no answers, or the files differ in their number of lines.
    """
    path = Path(file.layout.answers) if file.layout.answers else answers_beside(file.path)
    if path is None or not path.is_file():
        raise ValueError(
            f"{file.path}: expected a file of answers, one a line, found {path or 'none'}. Name it "
            "with --set answers=FILE."
        )
    file.report.note(f"{file.path}: the answers are in {path}")
    others = dataclasses.replace(file, path=path)
    for question, answer in itertools.zip_longest(file.lines(), others.lines()):
        if question is None or answer is None:
            longer = file.path if answer is None else path
            raise ValueError(
                f"{longer}:{(question or answer).number}: expected as many lines as the other file "
                f"has, found more. Line by line {file.path} and {path} must be question and answer."
            )
        yield [file.turn(question.text, question), others.turn(answer.text, answer)]

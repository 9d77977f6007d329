"""`towers chat`: a conversation with a chatbot that was trained."""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from towers.scripts.chatbot.answerer import Answer, Answerer, decoding_from
from towers.scripts.training.trained import open_model

PROMPT = "you> "
HELP = "Ctrl-D or /quit ends, /new forgets what was said before."


def run(options: argparse.Namespace) -> int:
    """Answers what is typed, the questions of --ask, or each line of --stdin."""
    opened = open_model(options.run_dir, options.checkpoint, options)
    fields = opened.recipe.fields
    answerer = Answerer(
        opened.model,
        opened.text,
        decoding_from(options, fields.max_answer_length),
        max_question_length=fields.max_question_length,
    )
    if options.stdin:
        answer_lines(answerer, fields.context, options.seed)
        return 0
    if options.ask:
        print(opened.description)
        converse(answerer, asked_lines(options.ask), fields.context, options.seed)
        return 0
    print(f"{opened.description}\n{HELP}")
    with line_editing(opened.directory.path / "chat_history"):
        converse(answerer, typed_lines(), fields.context, options.seed)
    return 0


def answer_lines(answerer: Answerer, context: int, seed: int) -> None:
    """Answers each line of the standard input by a line; TAB parts turns, and answers."""
    for number, line in enumerate(sys.stdin):
        turns = [turn for turn in line.rstrip("\r\n").split("\t") if turn.strip()]
        turns = turns[-1 - context :]
        answers = answerer.answer([turns], seed=seed + number)[0] if turns else []
        print("\t".join(answer.text for answer in answers), flush=True)


def converse(answerer: Answerer, lines: Iterable[str], context: int, seed: int) -> None:
    """Answers line after line; what was said before belongs to a question.

    Args:
        answerer: the chatbot.
        lines: what the person says, or `/new`.
        context: how many earlier turns belong to a question.
        seed: of sampled answers; each turn has its own.
    """
    said: list[str] = []
    for turn, question in enumerate(lines):
        if question == "/new":
            said.clear()
            continue
        said.append(question)
        answers = answerer.answer([said[-1 - context :]], seed=seed + turn)[0]
        print_answers(answers)
        said.append(answers[0].text)


def typed_lines() -> Iterator[str]:
    """Yields what is typed, without blank lines, until the end or /quit."""
    while True:
        try:
            line = input(PROMPT).strip()
        except EOFError:
            print()
            return
        if line == "/quit":
            return
        if line:
            yield line


def asked_lines(questions: Iterable[str]) -> Iterator[str]:
    """Yields questions, and prints each as if it had been typed."""
    for question in questions:
        print(f"{PROMPT}{question}")
        yield question


def print_answers(answers: list[Answer]) -> None:
    """Prints the answer, or all of an n-best list with their scores."""
    if len(answers) == 1:
        print(f"bot> {answers[0].text}")
        return
    for answer in answers:
        print(f"bot> {answer.score:8.3f}  {answer.text}")


@contextlib.contextmanager
def line_editing(history: Path) -> Iterator[None]:
    """Within this scope `input` edits lines and recalls earlier ones, if Python has readline."""
    try:
        import readline
    except ImportError:  # Not on every system.
        yield
        return
    with contextlib.suppress(OSError):
        readline.read_history_file(history)
    try:
        yield
    finally:
        with contextlib.suppress(OSError):  # A read-only run can be talked to as well.
            readline.write_history_file(history)

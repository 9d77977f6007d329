"""Conversations with a chatbot: typed, given on the command line, or line by line from a pipe."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from towers.scripts.chatbot.answerer import Answer, Answerer

PROMPT = "you> "
HELP = "Ctrl-D or /quit ends, /new forgets the earlier turns."


def answer_lines(answerer: Answerer, context: int, seed: int) -> None:
    """Prints one line of answers per input line; turns, and answers, are separated by TABs."""
    for number, line in enumerate(sys.stdin):
        turns = [turn for turn in line.rstrip("\r\n").split("\t") if turn.strip()]
        turns = turns[-1 - context :]
        answers = answerer.answer([turns], seed=seed + number)[0] if turns else []
        print("\t".join(answer.text for answer in answers), flush=True)


def converse(answerer: Answerer, lines: Iterable[str], context: int, seed: int) -> None:
    """Answers line after line; earlier turns belong to a question.

    Args:
        answerer: the chatbot.
        lines: questions, or `/new` to forget the earlier turns.
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
    """Yields the typed lines, without blank ones, until the end of the input or /quit."""
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
    """Yields questions, and prints each as if it was typed."""
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
        with contextlib.suppress(OSError):  # The run may be read-only.
            readline.write_history_file(history)

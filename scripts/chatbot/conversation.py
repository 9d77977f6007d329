"""Conversations with a chatbot: typed, given on the command line, or line by line from a pipe."""

from __future__ import annotations

import contextlib
import locale
import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from towers.ground.interrupts import end_if_interrupted
from towers.scripts.chatbot.answerer import Answer, Chatbot
from towers.scripts.chatbot.commands import (
    Command,
    change_decoding,
    describe_decoding,
    help_lines,
    read_command,
)
from towers.scripts.chatbot.explanation import MakeAnswerer, explain, unknown_fraction
from towers.scripts.chatbot.introduction import introduce, list_topics
from towers.scripts.chatbot.opening import read_context, unread_tokens
from towers.scripts.options.setting import is_blank, is_utf_8
from towers.scripts.shown import show
from towers.scripts.training.options import DecodingOptions
from towers.scripts.training.saved_run import OpenModel
from towers.scripts.wrong_input import WrongInputError

PROMPT = "you> "
WELCOME = "Type a message, or /help for the commands; Ctrl-D or /quit ends."
FORGOT = "The earlier turns are forgotten."
NOTHING_SAID = "There is no answer yet. Ask something first."
HINT = (
    "hint: this chatbot does not know most words of your message, so its answer may be a guess. "
    "/help lists what you can type."
)
ENDS = ("bye", "quit")  # A chatbot answers a bye.
MOST = 0.5  # Above this fraction of unknown words the hint is given.


class Conversation:
    """One conversation: earlier turns belong to a question, and commands change how it goes on.

    Each answerer has a graph to build, so `make_answerer` may keep them.

    Raises:
        ValueError: the options are impossible.
    """

    def __init__(self, opened: OpenModel, options: DecodingOptions, make_answerer: MakeAnswerer):
        self._opened = opened
        self._make_answerer = make_answerer
        self._options = options
        self._answerer = make_answerer(options)
        self._num_answers = 0
        self._said: list[str] = []
        self._last: tuple[list[str], Answer] | None = None
        self._hint_given = False

    @property
    def introduction(self) -> str:
        """Lines about the chatbot: which run it is, and what it was trained on."""
        return f"{self._opened.description}\n{introduce(self._opened.about)}"

    def hold(self, lines: Iterable[str], *, obeys_words: bool = True) -> None:
        """Answers messages and obeys commands, line after line, until one of them ends it.

        Unless it `obeys_words`, only what begins with a slash is a command.
        """
        for line in lines:
            if self._ends_with(line, obeys_words):
                return

    def _ends_with(self, line: str, obeys_words: bool) -> bool:
        """Answers or obeys a line; returns whether the conversation ends with it."""
        try:
            command = read_command(line) if obeys_words or line.startswith("/") else None
        except ValueError as error:  # It can be typed again.
            show(error)
            return False
        if command is None or command.name == "bye":
            self._reply(line)
        elif command.name != "quit":
            self._obey(command)
        return command is not None and command.name in ENDS

    def _reply(self, message: str) -> None:
        """Prints the answer to a message, which then is an earlier turn as well."""
        self._said.append(message)
        turns = self._said[-1 - read_context(self._opened) :]
        seed = self._options.seed + self._num_answers
        answers = self._answerer.answer([turns], seed=seed)[0]
        for one in answers:  # An n-best list may have the same ones.
            score = f"{one.score:8.3f}  " if self._options.nbest > 1 else ""
            show(f"bot> {score}{one.text}")
        self._num_answers += 1
        self._said.append(answers[0].text)
        self._last = turns, answers[0]
        if note := unread_note(self._opened, message):
            show(f"note: {note}")
        if not self._hint_given and unknown_fraction(self._opened.text, message) > MOST:
            self._hint_given = True
            show(HINT)

    def _obey(self, command: Command) -> None:
        if command.name == "help":
            show("\n".join([*help_lines(), *list_topics(self._opened.about)]))
        elif command.name == "new":
            self._said.clear()
            self._last, self._hint_given = None, False
            show(FORGOT)
        elif command.name == "why" and self._last is not None:
            how = self._opened, self._make_answerer, self._options
            show("\n".join(explain(*how, *self._last)))
        elif command.name == "why":
            show(NOTHING_SAID)
        else:
            self._change_decoding(command)

    def _change_decoding(self, command: Command) -> None:
        try:
            options = change_decoding(self._options, command)
            self._answerer = self._make_answerer(options)
        except ValueError as error:  # It can be typed again.
            show(error)
            return
        self._options = options
        show(describe_decoding(options))


def answer_lines(opened: OpenModel, answerer: Chatbot, seed: int) -> None:
    """Prints one line of answers per input line; turns, and answers, are separated by TABs.

    What is not read of a line is told beside the answers.

    Raises:
        WrongInputError: a line is not UTF-8; those before it are answered.
    """
    context = read_context(opened)
    for number, line in enumerate(sys.stdin):
        if not is_utf_8(line):
            raise WrongInputError(
                f"Line {number + 1} of the input is not text in UTF-8: '{line.rstrip():.80}'. "
                "Convert the input to UTF-8."
            )
        turns = [turn for turn in line.rstrip("\r\n").split("\t") if not is_blank(turn)]
        turns = turns[-1 - context :]
        answers = answerer.answer([turns], seed=seed + number)[0] if turns else []
        show("\t".join(answer.text for answer in answers), flush=True)
        if turns and (note := unread_note(opened, turns[-1])):
            show(f"towers: line {number + 1}: {note}", file=sys.stderr)


def unread_note(opened: OpenModel, message: str) -> str:
    """Returns what is said of a message that is longer than the model reads, else nothing."""
    unread = unread_tokens(opened, message)
    return f"the first {unread} tokens of the message were not read." if unread else ""


def typed_lines() -> Iterator[str]:
    """Yields the typed lines, without blank ones, until the end of the input."""
    while True:
        end_if_interrupted()  # While it answered, where Python may have lost it.
        try:
            line = input(PROMPT).strip()
        except EOFError:
            show()
            return
        except KeyboardInterrupt:
            show()  # What is said of it begins a line.
            raise
        if not is_utf_8(line):
            show(f"That is not text in UTF-8: '{line:.80}'. Type it again, in a terminal of UTF-8.")
        elif not is_blank(line):
            yield line


def asked_lines(questions: Iterable[str]) -> Iterator[str]:
    """Yields questions, and prints each as if it was typed."""
    for question in questions:
        show(f"{PROMPT}{question}")
        yield question


@contextlib.contextmanager
def line_editing(history: Path) -> Iterator[None]:
    """Within this scope `input` edits lines and recalls earlier ones, if Python has readline.

    It says where they are kept, if they can be. Input that is piped in is neither edited nor kept,
    nor what is typed where the locale has no UTF-8: readline would take its bytes for keys.
    """
    if not sys.stdin.isatty() or locale.nl_langinfo(locale.CODESET) != "UTF-8":
        yield
        return
    try:
        import readline
    except ImportError:  # Not on every system.
        yield
        return
    with contextlib.suppress(OSError):
        readline.read_history_file(history)
    kept = ""
    with contextlib.suppress(OSError):  # The folder may be read-only.
        history.parent.mkdir(parents=True, exist_ok=True)
        history.open("a").close()
        kept = f"; they are kept in {history}"
    show(f"The arrow keys recall earlier messages{kept}.")
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            readline.write_history_file(history)


def history_file() -> Path:
    """Returns where typed messages are kept: where programs keep such things, not in a run.

    https://specifications.freedesktop.org/basedir-spec
    """
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(state) / "towers" / "chat_history"

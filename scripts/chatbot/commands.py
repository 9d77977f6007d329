"""The commands of a conversation: what is typed, and how it changes the decoding."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

from towers.scripts.training.options import DecodingOptions
from towers.scripts.wrong_input import nearest

WIDEST_BEAM = 100  # A wider one takes more memory than a conversation is worth.
PUNCTUATION = "!.~！。～"  # noqa: RUF001 - people end a Chinese word with these.


class Command(NamedTuple):
    """A command that was typed: its name, and the value that stood behind it."""

    name: str
    value: Any = None


class Usage(NamedTuple):
    """How a command is typed and what it does.

    Attributes:
        text: what it does.
        example: of its argument, empty for a command without one.
        read: from the argument's text to its value.
        expected: what the argument has to be.
    """

    text: str
    example: str = ""
    read: Callable[[str], Any] = str
    expected: str = ""


USAGES = {
    "help": Usage("show this"),
    "quit": Usage("end the conversation, as Ctrl-D does"),
    "new": Usage("forget the earlier turns"),
    "why": Usage("show the likeliest answers, and what each word of the answer attended to"),
    "beam": Usage("search with this many beams", "5", int, "a whole number"),
    "top-p": Usage("sample from the likeliest words with this total probability",
                   "0.9", float, "a number"),
    "temperature": Usage("sample; below 1 favours likely words more, above 1 less",
                         "0.8", float, "a number"),
    "greedy": Usage("go back to the likeliest word at each position"),
}  # fmt: skip
# What people type alone, without a slash, and mean as a command.
WORDS = {
    "help": "help",
    "quit": "quit",
    "exit": "quit",
    "bye": "bye",
    "帮助": "help",
    "退出": "quit",
    "再见": "bye",
}


def read_command(line: str) -> Command | None:
    """Returns the command of a typed line, None for a message; ValueError for a wrong command."""
    alone = line.strip().strip(PUNCTUATION).casefold()
    if alone.removeprefix("/") in WORDS:
        return Command(WORDS[alone.removeprefix("/")])
    if not line.startswith("/"):
        return None
    name, _, argument = line[1:].strip().partition(" ")
    return Command(name.casefold(), read_argument(name.casefold(), argument.strip()))


def read_argument(name: str, argument: str) -> Any:
    """Returns the value of a command's argument, None for a command without one.

    Raises:
        ValueError: there is no such command, or it takes another argument, or none.
    """
    if name not in USAGES:
        suggestion = nearest(f"/{name}", [f"/{one}" for one in USAGES])
        raise ValueError(f"There is no command /{name}.{suggestion} /help explains them.")
    usage = USAGES[name]
    if not usage.example:
        if argument:
            raise ValueError(f"/{name} takes no argument. Received /{name} {argument}.")
        return None
    try:
        return usage.read(argument)
    except ValueError as error:
        received = f" Received {argument!r}." if argument else ""
        raise ValueError(
            f"/{name} takes {usage.expected}, such as /{name} {usage.example}.{received}"
        ) from error


def change_decoding(options: DecodingOptions, command: Command) -> DecodingOptions:
    """Returns the options after /beam, /top-p, /temperature or /greedy.

    A search ends the sampling, and the other way round; temperature and top-p go together.

    Raises:
        ValueError: there is no beam, or more than `WIDEST_BEAM`.
    """
    if command.name in ("top-p", "temperature"):
        name = command.name.replace("-", "_")
        return dataclasses.replace(options, beam=1, **{name: command.value})
    beam = command.value if command.name == "beam" else 1
    if not 1 <= beam <= WIDEST_BEAM:
        raise ValueError(f"/beam takes 1 to {WIDEST_BEAM} beams. Received {beam}.")
    return search_options(options, beam, min(options.nbest, beam))


def search_options(options: DecodingOptions, beam: int, nbest: int) -> DecodingOptions:
    """Returns the options with a search in place of any sampling; with one beam it is greedy."""
    return dataclasses.replace(
        options,
        beam=beam,
        nbest=nbest,
        temperature=None,
        top_k=None,
        top_p=None,
        candidates=DecodingOptions.candidates,
    )


def describe_decoding(options: DecodingOptions) -> str:
    """Returns how answers are found, in a few words."""
    sampling = {
        "temperature": options.temperature,
        "top-k": options.top_k,
        "top-p": options.top_p,
    }
    given = [f"{name} {value}" for name, value in sampling.items() if value is not None]
    if given:
        return f"Answers are sampled with {', '.join(given)}."
    if options.beam > 1:
        return f"Answers are found by a search with {options.beam} beams."
    return "Answers take the likeliest word at each position."


def help_lines() -> list[str]:
    """Returns a line for each command."""
    typed = {f"/{name} {usage.example}".strip(): usage.text for name, usage in USAGES.items()}
    width = max(map(len, typed))
    return [
        *(f"  {command:{width}}  {text}" for command, text in typed.items()),
        f"Typed alone, these work too: {', '.join(WORDS)}.",
    ]

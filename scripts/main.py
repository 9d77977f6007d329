"""The `towers` command: reads the command line and runs one of the commands."""

from __future__ import annotations

import argparse
import contextlib
import errno
import importlib
import io
import os
import platform
import signal
import sys
import traceback
import typing
import warnings
from collections.abc import Collection, Sequence
from types import ModuleType
from typing import Any, NoReturn

from towers.ground.interrupts import note_interrupts, was_interrupted
from towers.scripts.options.flags import HelpFormatter, Parser, add_flags, read_options
from towers.scripts.options.setting import all_settings
from towers.scripts.other_words import advice, command_for, command_line
from towers.scripts.shown import show
from towers.scripts.wrong_input import EXIT_CODE as WRONG_INPUT
from towers.scripts.wrong_input import (
    WrongInputError,
    fail,
    is_of_tensorflow,
    show_traceback,
    wrong_input,
)

FAILED = 1
BUG = (
    "towers: this is a bug, not wrong input. Please report it with the traceback above: see "
    "CONTRIBUTING.md"
)
OPTIONS = ("-h", "--help", "--version")  # Without a command.
PACKAGES = ("towers", "tensorflow", "keras")  # `--version` prints theirs.
# The modules of towers.scripts.commands. Flags are made of the dataclass that `run(options)` takes,
# the rest of the help of the module's docstring: a description, and examples. A module may also
# have `USUAL`, the options that --help shows, the others being those of --help-all, `USAGE`, the
# help's first line, and `completed(given)`, which returns the options of the command line with
# those of a file.
COMMANDS = {
    "recipes": "list the recipes, or the fields of one",
    "prepare": "read and tokenise a corpus before training",
    "train": "train a recipe, or continue its run",
    "launch": "train with several processes, on this machine or on several",
    "runs": "list the runs in a folder, or compare several",
    "evaluate": "evaluate a run on its test data",
    "chat": "talk to a trained chatbot",
    "serve": "serve a trained chatbot: OpenAI's API and a web page",
    "generate": "continue a prompt with a trained language model",
    "predict": "classify image files with a trained network",
    "export": "write a trained model as a SavedModel that runs without this package",
    "doctor": "check this machine: software, devices, space, and equal results on all towers",
    "estimate": "estimate the memory and data transfer of a recipe's training",
    "devices": "list the devices that TensorFlow finds",
    "download": "download a data set from its official address",
    "benchmark": "time a recipe's step on different numbers of towers, or its input",
    "completion": "print a script for tab completion in your shell",
}


class PrintVersion(argparse.Action):
    """Prints the versions and ends; they are looked up only then."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> NoReturn:
        """Prints one line."""
        import importlib.metadata  # It takes a while, and no other command needs it.

        versions = [f"{name} {importlib.metadata.version(name)}" for name in PACKAGES]
        show(f"{', '.join(versions)}, Python {platform.python_version()}")
        parser.exit()


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit code: 0, 1 if it failed, 2 for wrong input."""
    if arguments is None:
        arguments = sys.argv[1:]
        warnings.showwarning = show_warning
        prepare_streams()
        note_interrupts()
    try:
        command, options = read_command(arguments)
        code: int = command.run(options)
        sys.stdout.flush()
        return code
    except BrokenPipeError:  # Its reader has left, such as `head`.
        drop_unwritten()
        return 128 + signal.SIGPIPE
    except WrongInputError as error:
        return fail(error, WRONG_INPUT)
    except KeyboardInterrupt:
        return interrupted()
    except Exception as error:
        if was_interrupted():
            return interrupted()
        if is_for_users(error):
            drop_unwritten()
            return fail(error, FAILED)
        show_traceback(error)
        show(BUG, file=sys.stderr)
        return FAILED


def interrupted() -> int:
    """Says that Ctrl-C ended the command, and returns the exit code."""
    show("towers: interrupted", file=sys.stderr)
    return 128 + signal.SIGINT


def read_command(arguments: Sequence[str]) -> tuple[ModuleType, Any]:
    """Returns the module of a command and its options; raises WrongInputError for wrong ones."""
    given = vars(parse(arguments))
    command = load_command(given["command"])
    if hasattr(command, "completed"):
        with wrong_input():
            given = command.completed(given)
    return command, read_options(options_of(command), given)


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Returns the options; a wrong command line ends the program with exit code 2."""
    arguments = command_line(arguments)
    parser = build_parser(arguments[:1])
    if arguments and arguments[0] not in {*COMMANDS, *OPTIONS}:
        hint = command_for(arguments[0], COMMANDS)
        parser.error(f"there is no command {arguments[0]!r}.{hint}")
    try:
        return parser.parse_args(arguments)
    finally:
        sys.stdout.flush()  # Rather here than at Python's end: a help's reader may have left.


def prepare_streams() -> None:
    """Makes sure that printing cannot fail for what is printed, and that input is UTF-8 anywhere.

    Characters outside the output's encoding are escaped. A closed output takes everything, and a
    closed input is an empty one. Other bytes of the input become surrogates: who reads a line knows
    what to say of it.
    """
    if sys.stdin is None:
        sys.stdin = open(os.devnull, encoding="utf-8")  # noqa: SIM115
    if isinstance(sys.stdin, io.TextIOWrapper):  # A caller's own may be another.
        sys.stdin.reconfigure(encoding="utf-8", errors="surrogateescape")
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115
        else:
            getattr(sys, name).reconfigure(errors="backslashreplace")


def build_parser(names: Collection[str] = COMMANDS) -> argparse.ArgumentParser:
    """Returns the parser of the command line; the modules of other commands are not imported."""
    parser = Parser(
        prog="towers",
        description="Trains models on several GPUs with one tower per GPU.",
        epilog="`towers help COMMAND` explains a command.",
    )
    parser.add_argument("--version", action=PrintVersion, nargs=0,
                        default=argparse.SUPPRESS,
                        help="print the versions of towers and its libraries")  # fmt: skip
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, summary in COMMANDS.items():
        # Options that are not given are absent: their defaults stand in the options' dataclasses.
        own = commands.add_parser(
            name,
            help=summary,
            allow_abbrev=False,  # A new option would change what an old command means.
            argument_default=argparse.SUPPRESS,
            formatter_class=HelpFormatter,
        )
        own.advice = advice
        if name in names:
            add_options(own, load_command(name))
    return parser


def add_options(parser: Parser, command: ModuleType) -> None:
    """Adds the options of a command, and what its help says besides them."""
    _, *paragraphs = (command.__doc__ or "").rstrip().split("\n\n")
    *description, examples = paragraphs or [""]  # Python has no docstrings with -OO.
    summary = COMMANDS[command.__name__.rpartition(".")[2]]
    said = " ".join(" ".join(description).split())
    parser.description = said or f"{summary[0].upper()}{summary[1:]}."
    heading = ["examples:"] if examples else []
    parser.epilog = "\n  ".join([*heading, *map(str.strip, examples.splitlines())])
    kind = options_of(command)
    every = all_settings(kind)
    add_flags(parser, kind, rare=every.keys() - getattr(command, "USUAL", every))
    parser.usage = getattr(command, "USAGE", None) or parser.short_usage()
    parser.add_help_all()


def options_of(command: ModuleType) -> type:
    """Returns the dataclass of options that a command runs with."""
    kind: type = typing.get_type_hints(command.run)["options"]
    return kind


def load_command(name: str) -> ModuleType:
    """Returns the module of a command, which imports TensorFlow only when it runs."""
    return importlib.import_module(f"towers.scripts.commands.{name}")


def drop_unwritten() -> None:
    """Drops what the output takes no more, which Python would try to write again at its end."""
    try:
        sys.stdout.flush()
    except OSError:
        with contextlib.suppress(OSError):  # The caller of `main` may have replaced the output.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def show_warning(message: Warning | str, *_: object, **__: object) -> None:
    """Prints a warning in one line, without its place in the code."""
    show(f"towers: warning: {message}", file=sys.stderr, colour="yellow")


def is_for_users(error: Exception) -> bool:
    """Returns whether an error's message tells users enough.

    It does if TensorFlow raised it, such as for exhausted memory or a lost device, if a disk is
    full, or if it is a RuntimeError that this package raised, such as for a gradient that is not
    finite.
    """
    if is_of_tensorflow(error) or getattr(error, "errno", None) == errno.ENOSPC:
        return True
    *_, (frame, _) = traceback.walk_tb(error.__traceback__)  # Where it was raised.
    module = str(frame.f_globals.get("__name__", ""))
    return isinstance(error, RuntimeError) and module.startswith("towers.")


if __name__ == "__main__":
    sys.exit(main())

"""Flags: from dataclasses of options to a parser of command lines, and back."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import inspect
import sys
import typing
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, NoReturn, TypeVar

from towers.ground.progress import count_of
from towers.scripts.options.setting import Setting, groups_of, settings_of, shown
from towers.scripts.shown import show
from towers.scripts.wrong_input import EXIT_CODE, WrongInputError, fail, nearest, wrong_input

Options = TypeVar("Options")
LISTS = {"RECIPE": "recipes", "RUN_DIR": "runs"}  # The commands that list what stands there.


def add_flags(parser: argparse.ArgumentParser, *kinds: type, rare: Collection[str] = ()) -> None:
    """Adds a flag for each setting of dataclasses; one without a default is an argument.

    Options that are not given are absent from what is parsed: their defaults are the dataclass's.

    Args:
        parser: of the command.
        kinds: the dataclasses. Fields that are dataclasses themselves, and their bases, are groups
            of flags, each below the first line of its docstring.
        rare: the names of settings that only `--help-all` shows.
    """
    for kind in kinds:
        for setting in settings_of(kind).values():
            add_flag(parser, setting, setting.name in rare)
        for group in groups_of(kind).values():
            left = dict(settings_of(group))  # A group may say anew what its base says.
            for owner in filter(dataclasses.is_dataclass, reversed(group.__mro__)):
                title, _, _ = (inspect.getdoc(owner) or "").partition("\n")
                container = parser.add_argument_group(title.rstrip("."))
                own = [name for name in left if name in inspect.get_annotations(owner)]
                for name in own:
                    add_flag(container, left.pop(name), name in rare)


def add_flag(container: argparse._ActionsContainer, setting: Setting, is_rare: bool) -> None:
    """Adds the flag, or the argument, of a setting."""
    others = ("name", "is_argument", "opposite")
    options = {name: value for name, value in setting.flag.items() if name not in others}
    options["help"] = help_of(setting).replace("%", "%%")
    if setting.kind is bool:
        is_switch = setting.is_optional or "opposite" in setting.flag
        options["action"] = argparse.BooleanOptionalAction if is_switch else "store_true"
    else:
        options["type"] = reader(setting)
    if setting.choices:
        options["choices"] = setting.choices
    if setting.is_argument:
        action = container.add_argument(setting.name, **options)
    else:
        action = container.add_argument(f"--{setting.key}", dest=setting.name, **options)
    action.is_rare = is_rare  # type: ignore[attr-defined]


def reader(setting: Setting) -> Callable[[str], Any]:
    """Returns what argparse calls with a text."""

    def read(text: str) -> Any:
        try:
            return setting.read(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from error

    return read


def help_of(setting: Setting) -> str:
    """Returns the meaning of a setting, with its default."""
    text, default = setting.meaning, setting.default
    text = text if text.endswith("...") else text.removesuffix(".")
    if setting.kind is bool or setting.is_argument or "default" in text:
        return text
    is_none = default in (None, "", ())
    return f"{text} (default: {'none' if is_none else shown(default)})"


def read_options(kind: type[Options], given: Mapping[str, Any]) -> Options:
    """Returns a dataclass of options, with its defaults for options that were not given.

    Fields that are dataclasses themselves are read in the same way.
    """
    groups = groups_of(kind).items()
    values: dict[str, Any] = {name: read_options(group, given) for name, group in groups}
    for name in settings_of(kind).keys() & given.keys():
        values[name] = tuple(given[name]) if isinstance(given[name], list) else given[name]
    return kind(**values)


def words_to_continue(given: Sequence[str], run_dir: str) -> list[str]:
    """Returns the words of the command that continues a run.

    They name its directory: the number that `{n}` became would be another one now.
    """
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--run-dir")
    parser.add_argument("--overwrite", action="store_true")
    _, others = parser.parse_known_args(given)
    return [*others[:1], "--run-dir", run_dir, *others[1:]]


class Parser(argparse.ArgumentParser):
    """A parser whose errors are one line, and whose help leaves out what is rarely needed.

    Attributes:
        advice: `advice(option, known, arguments)` says what to write instead of an unknown option,
            None if that is not known.
    """

    advice: Callable[[str, Collection[str], Sequence[str]], str | None] | None = None

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Returns the options and what is left, without unknown options: these are errors."""
        options, left = super().parse_known_args(args, namespace)
        options_left = (text for text in left if text.startswith("-") or "=" in text)
        unknown = next((text.partition("=")[0] for text in options_left), None)
        lists = [one for one in self._actions if not one.option_strings and one.nargs in ("*", "+")]
        if left and unknown is None:
            if not lists:
                usage = self.usage or self.short_usage()
                self.error(f"unexpected argument {left[0]!r}: the usage is `{usage}`")
            # argparse gives a list only what stands before the next option.
            before = getattr(options, lists[0].dest, ())
            setattr(options, lists[0].dest, [*before, *left])
            return options, []
        if unknown is not None:
            name = unknown.lstrip("-")
            texts = (text for action in self._actions for text in action.option_strings)
            known = {text[2:] for text in texts if text.startswith("--")}
            advice = self.advice and self.advice(name, known, args or ())
            self.error(f"there is no option {unknown}.{advice or nearest(name, known, '--')}")
        return options, left

    def _print_message(self, message: str, file: Any = None) -> None:
        """Prints a help; argparse passes over an output that takes none, such as a full disk."""
        (file or sys.stderr).write(message)

    def error(self, message: str) -> NoReturn:
        """Prints the message and ends with exit code 2."""
        for name, command in LISTS.items():
            if f"required: {name}" in message:
                message += f"; `towers {command}` lists them"
        stop = "" if message.endswith((".", "?")) else "."
        fail(f"{message}{stop} See `{self.prog} --help`.", EXIT_CODE)
        self.exit(EXIT_CODE)

    @contextlib.contextmanager
    def refusing(self, *kinds: type[Exception]) -> Iterator[None]:
        """The scope whose wrong input ends the program with one line, as wrong options do.

        Args:
            kinds: of errors that are wrong input, too, as in `wrong_input`.
        """
        try:
            with wrong_input(*kinds):
                yield
        except WrongInputError as error:
            self.error(str(error))

    def format_help(self, *, all_options: bool = False) -> str:
        """Returns the help, with what is rarely needed or without, and the examples at its end."""
        rare = [action for action in self._actions if getattr(action, "is_rare", False)]
        hidden = [] if all_options else rare
        helps, examples = [action.help for action in hidden], self.epilog
        try:
            for action in hidden:
                action.help = argparse.SUPPRESS
            if hidden:
                self.epilog = (
                    f"{count_of(len(hidden), 'more option')} with --help-all\n\n{examples}"
                )
            return super().format_help()
        finally:
            self.epilog = examples
            for action, text in zip(hidden, helps, strict=True):
                action.help = text

    def short_usage(self) -> str:
        """Returns the usage without the options, which the help lists anyway."""
        formatter = self.formatter_class(prog=f"{self.prog} [options]")
        arguments = [action for action in self._actions if not action.option_strings]
        formatter.add_usage(None, arguments, [], "")
        return formatter.format_help().strip()

    def add_help_all(self) -> None:
        """Adds `--help-all`, which the help names if it leaves something out."""
        leaves_out = any(getattr(action, "is_rare", False) for action in self._actions)
        text = "show all options" if leaves_out else argparse.SUPPRESS
        self.add_argument("--help-all", action=HelpAll, nargs=0, help=text)


class HelpAll(argparse.Action):
    """Prints the help with all options and ends."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> NoReturn:
        """Prints it."""
        show(typing.cast(Parser, parser).format_help(all_options=True).rstrip("\n"))
        parser.exit()


class HelpFormatter(argparse.HelpFormatter):
    """Wraps all texts but those of several lines, such as examples."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return text if "\n" in text else super()._fill_text(text, width, indent)

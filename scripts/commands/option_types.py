"""The types of options: each function returns the value of a text, or raises an error for it."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any


class Switch(argparse.Action):
    """An option that is on with `--name` and off with `--no-name`, such as one of a config file."""

    def __init__(self, option_strings: Sequence[str], dest: str, **others: Any):
        opposites = [f"--no-{name.removeprefix('--')}" for name in option_strings]
        super().__init__([*option_strings, *opposites], dest, nargs=0, **others)

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        """Sets the option."""
        setattr(namespace, self.dest, not str(option_string).startswith("--no-"))


MOST = 2**31 - 1
MOST_PARTS = 1024  # Of what each costs a device, a process or a graph.
MOST_TOKENS = 100_000  # Of a text that is written; there is room for all of them from the start.


def positive_int(text: str) -> int:
    """Returns a whole number of at least 1."""
    return whole_number(text, MOST)


def number_of_parts(text: str) -> int:
    """Returns a whole number from 1 to `MOST_PARTS`."""
    return whole_number(text, MOST_PARTS)


def number_of_tokens(text: str) -> int:
    """Returns a whole number from 1 to `MOST_TOKENS`."""
    return whole_number(text, MOST_TOKENS)


def whole_number(text: str, most: int) -> int:
    """Returns a whole number from 1 to `most`."""
    digits = text.strip().removeprefix("+")
    value = int(digits) if digits.isdecimal() and len(digits) < 20 else 0
    if not 1 <= value <= most:
        at_most = "" if most == MOST and len(digits) < 10 else f" and at most {most}"
        raise argparse.ArgumentTypeError(
            f"expected a whole number of at least 1{at_most}, not {text!r}"
        )
    return value


def path_name(text: str) -> str:
    """Returns the name of a file or a folder, which is not blank."""
    if not text.strip():
        raise argparse.ArgumentTypeError(f"expected a path, not {text!r}")
    return text


def seed_number(text: str) -> int:
    """Returns a whole number that NumPy takes as a seed."""
    value = int(text) if text.strip().isdecimal() and len(text) < 20 else -1
    if not 0 <= value < 2**32:
        raise argparse.ArgumentTypeError(
            f"expected a whole number from 0 to 2**32 - 1, not {text!r}"
        )
    return value


def positive_float(text: str) -> float:
    """Returns a number above 0."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"expected a number above 0, not {text!r}")
    return value


def int_list(text: str) -> list[int]:
    """Returns whole numbers from a list such as 0,2."""
    try:
        numbers = [int(part) for part in text.split(",")]
        if max(numbers) > MOST:
            raise ValueError
        return numbers
    except ValueError as error:
        message = f"expected whole numbers such as 0,2, not {text!r}"
        raise argparse.ArgumentTypeError(message) from error


def step_range(text: str) -> str:
    """Returns a range of steps such as 100-110."""
    first, dash, last = text.partition("-")
    if not (dash and first.isdigit() and last.isdigit() and 2 <= int(first) <= int(last)):
        raise argparse.ArgumentTypeError(
            f"expected a range of steps from 2 on, such as 100-110, not {text!r}"
        )
    return f"{int(first)}-{int(last)}"


def name_list(text: str) -> list[str]:
    """Returns names from a list such as plain,fit."""
    return [part.strip() for part in text.split(",") if part.strip()]


def port_number(text: str) -> int:
    """Returns the number of a TCP port, 0 for any that is free."""
    value = int(text) if text.strip().isdecimal() and len(text) < 20 else -1
    if not 0 <= value < 2**16:
        raise argparse.ArgumentTypeError(f"expected a port from 0 to 65535, not {text!r}")
    return value

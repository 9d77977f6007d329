"""Checks of arguments, and their error messages."""

from __future__ import annotations

import difflib
import math
import numbers
import os
from collections.abc import Iterable, Sequence
from pathlib import Path


def check_choice(name: str, value: str, choices: Iterable[str]) -> None:
    """Raises ValueError, with the nearest choice, unless the value is one of the choices."""
    choices = list(choices)
    if value in choices:
        return
    names = {one.casefold(): one for one in choices}
    nearest = difflib.get_close_matches(str(value).casefold(), names, n=1)
    hint = f" Did you mean {names[nearest[0]]}?" if nearest else ""
    raise ValueError(f"{name} must be one of {', '.join(choices)}. Received {value!r}.{hint}")


def check_at_least(minimum: int, **counts: int) -> None:
    """Raises ValueError unless each named count is a whole number of at least the minimum."""
    for name, count in counts.items():
        is_whole = isinstance(count, numbers.Integral) and not isinstance(count, bool)
        if not is_whole or count < minimum:
            raise ValueError(
                f"{name} must be a whole number of at least {minimum}. Received {count!r:.80}."
            )


def check_above_0(**values: float) -> None:
    """Raises ValueError unless each named number is finite and above 0."""
    for name, value in values.items():
        if not is_number(value) or not 0 < value < math.inf:
            raise ValueError(f"{name} must be above 0 and finite. Received {value!r}.")


def check_not_negative(**values: float) -> None:
    """Raises ValueError unless each named number is finite and at least 0."""
    for name, value in values.items():
        if not is_number(value) or not 0 <= value < math.inf:
            is_negative = is_number(value) and value < 0
            flaw = "must not be negative" if is_negative else "must be a finite number"
            raise ValueError(f"{name} {flaw}. Received {value!r}; use 0 for none.")


def check_fraction(**fractions: float) -> None:
    """Raises ValueError unless each named fraction is in [0, 1)."""
    for name, fraction in fractions.items():
        if not is_number(fraction) or not 0 <= fraction < 1:
            raise ValueError(f"{name} must be in [0, 1). Received {fraction!r}.")


def check_folder(**folders: str | os.PathLike[str]) -> None:
    """Raises ValueError unless each is the path of a folder, or of one that can be made."""
    for name, folder in folders.items():
        # An empty text, such as of a variable that is not set, would be the working directory.
        if not isinstance(folder, (str, os.PathLike)) or not str(folder) or Path(folder).is_file():
            raise ValueError(f"{name} must be a folder, or new. Received {folder!r}.")


def is_number(value: object) -> bool:
    """Returns whether a value is a real number; Python's True and False are none."""
    return isinstance(value, numbers.Real) and not isinstance(value, bool)


def shorten(items: Sequence[str], most: int) -> str:
    """Returns items in one line; of a long list, the first ones and the number of the rest.

    >>> shorten(["a", "b", "c"], 2)
    'a; b; and 1 more'
    """
    more = len(items) - most
    return "; ".join(items[:most]) + (f"; and {more} more" if more > 0 else "")

"""The check of an argument that must be one of a few names."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def check_choice(name: str, value: str, choices: Iterable[str]) -> None:
    """Raises ValueError unless the value is one of the choices; the message suggests the nearest.

    Args:
        name: of the argument.
        value: what was received.
        choices: what is allowed.
    """
    choices = list(choices)
    if value in choices:
        return
    nearest = difflib.get_close_matches(str(value), choices, n=1)
    hint = f" Did you mean {nearest[0]}?" if nearest else ""
    raise ValueError(f"{name} must be one of {', '.join(choices)}. Received {value!r}.{hint}")

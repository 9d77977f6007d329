"""Optional libraries: imported when they are needed, or refused with how to install them."""

from __future__ import annotations

import importlib
from typing import Any


def import_extra(module: str, extra: str, why: str) -> Any:
    """Returns a module of an optional library.

    Args:
        module: its name.
        extra: of this package, which installs it.
        why: what needs it.

    Raises:
        ValueError: it is not installed; the message says how to install it.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ValueError(
            f"{why}, which needs {module}. Install it in your clone with: {installs(extra)}"
        ) from error


def installs(extra: str) -> str:
    """Returns the command that installs an extra from a clone: there is no release elsewhere."""
    return f"pip install -e '.[{extra}]'"

"""Text files: read as UTF-8, or refused by name; why a file could not be read."""

from __future__ import annotations

from pathlib import Path


def read_text(path: str | Path) -> str:
    """Returns the text of a file with its line ends unchanged.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is not UTF-8.
    """
    try:
        return Path(path).read_bytes().decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: expected UTF-8 text, found {error}.") from error


def reason_of(error: BaseException) -> str:
    """Returns why a file could not be read: the system's words without number and name."""
    return getattr(error, "strerror", None) or str(error)

"""The local files of a data set: found by name and read, gzipped or not."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Sequence
from pathlib import Path


def find_file(folder: Path, names: Sequence[str], *, remedy: str) -> Path:
    """Returns the first file in the folder with one of the names, with or without `.gz`.

    Raises:
        FileNotFoundError: there is none; the message ends with the remedy.
    """
    path = find_optional_file(folder, names)
    if path is None:
        raise FileNotFoundError(
            f"{folder} has no file {' or '.join(names)} (with or without .gz). {remedy}"
        )
    return path


def find_optional_file(folder: Path, names: Sequence[str]) -> Path | None:
    """Returns the same file as `find_file`, or None if there is none."""
    candidates = [folder / (name + suffix) for name in names for suffix in ("", ".gz")]
    return next((path for path in candidates if path.is_file()), None)


def read_bytes(path: Path) -> bytes:
    """Returns a file's content, decompressed if it is `.gz`; ValueError if that is damaged."""
    if path.suffix != ".gz":
        return path.read_bytes()
    try:
        return gzip.decompress(path.read_bytes())
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise ValueError(
            f"{path}: expected a whole gzip file, found a damaged one ({error}). "
            "Delete it and download it again."
        ) from error

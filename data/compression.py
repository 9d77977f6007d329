"""Compressed files, read as what they hold: gzip and Zstandard, told by how they begin."""

from __future__ import annotations

import contextlib
import gzip
import zlib
from pathlib import Path
from typing import Any, BinaryIO

from towers.data.extras import import_extra

_MAGICS = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstandard"}


def decompressed(raw: BinaryIO, path: Path) -> contextlib.AbstractContextManager[Any]:
    """Returns the content of an open file, decompressed if it is compressed.

    Args:
        raw: the file, at its beginning.
        path: for the message.

    Raises:
        ValueError: it is compressed by Zstandard, and the library is not installed.
    """
    magic = raw.read(4)
    raw.seek(0)
    how = next((name for start, name in _MAGICS.items() if magic.startswith(start)), None)
    if how == "gzip":
        return gzip.GzipFile(fileobj=raw)
    if how == "zstandard":
        library = import_extra("backports.zstd", "zstd", f"{path} is compressed by Zstandard")
        return library.ZstdFile(raw)
    return contextlib.nullcontext(raw)


def read_errors() -> tuple[type[Exception], ...]:
    """Returns what reading and decoding such a file may raise."""
    errors: list[type[Exception]] = [OSError, EOFError, zlib.error, UnicodeError]
    with contextlib.suppress(ImportError):
        from backports import zstd

        errors.append(zstd.ZstdError)
    return tuple(errors)

"""Compressed files, read as what they hold: gzip and Zstandard, told by how they begin."""

from __future__ import annotations

import contextlib
import gzip
import io
import zlib
from pathlib import Path
from typing import Any, BinaryIO

from towers.data.extras import import_extra

BLOCK_BYTES = 1 << 17
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
        library = import_extra("zstandard", "zstd", f"{path} is compressed by Zstandard")
        return io.BufferedReader(Frames(raw, library.ZstdDecompressor()))
    return contextlib.nullcontext(raw)


class Frames(io.RawIOBase):
    """The content of a file of Zstandard's frames; a last frame without its end is an error.

    The library's own reader takes such an end for that of the file.

    Args:
        raw: the file, at its beginning.
        decompressor: the library's decompressor.
    """

    def __init__(self, raw: BinaryIO, decompressor: Any):
        self._raw, self._decompressor = raw, decompressor
        self._frame: Any = None
        self._content = b""

    def readable(self) -> bool:
        """Returns that the content can be read."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Fills a buffer, and returns how many bytes there were; 0 at the end.

        Raises:
            EOFError: the file ends within a frame.
        """
        while not self._content:
            ended = self._frame is None or self._frame.eof
            block = self._frame.unused_data if self._frame is not None and ended else b""
            block = block or self._raw.read(BLOCK_BYTES)
            if not block and ended:
                return 0
            if not block:
                raise EOFError("Compressed file ended before the end of its last frame")
            self._frame = self._decompressor.decompressobj() if ended else self._frame
            self._content = self._frame.decompress(block)
        taken = self._content[: len(buffer)]
        buffer[: len(taken)] = taken
        self._content = self._content[len(taken) :]
        return len(taken)


def read_errors() -> tuple[type[Exception], ...]:
    """Returns what reading and decoding such a file may raise."""
    errors: list[type[Exception]] = [OSError, EOFError, zlib.error, UnicodeError]
    with contextlib.suppress(ImportError):
        import zstandard

        errors.append(zstandard.ZstdError)
    return tuple(errors)

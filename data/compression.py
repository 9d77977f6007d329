"""Files read as what they hold: compressed ones, told by how they begin, and decoded text."""

from __future__ import annotations

import bz2
import codecs
import contextlib
import gzip
import io
import lzma
import zlib
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any, BinaryIO

from towers.data.folders import reason_of
from towers.ground.extras import import_extra

Progress = Callable[[int], None]

_OPENED: dict[bytes, Callable[..., Any]] = {
    b"\x1f\x8b": lambda raw: gzip.GzipFile(fileobj=raw),
    b"BZh": bz2.BZ2File,
    b"\xfd7zX": lzma.LZMAFile,
}
_ZSTANDARD = b"\x28\xb5\x2f\xfd"
SUFFIXES = (".gz", ".bz2", ".xz", ".zst")
CHUNK_BYTES = 1 << 16
_MARKS = (
    (codecs.BOM_UTF32_LE, "utf-32"),  # It begins as the mark of UTF-16 does.
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)


def decoded(
    path: Path,
    encoding: str,
    progress: Progress = lambda _: None,
    chunk_bytes: int = CHUNK_BYTES,
    *,
    any_line_end: bool = False,
) -> Generator[str, None, None]:
    """Yields the decoded text of a file, compressed or not, a chunk at a time.

    Args:
        path: the file.
        encoding: its codec; where it is UTF-8, a mark of byte order may tell UTF-16 or UTF-32.
        progress: called with the number of bytes of the file that were read since the last call.
        chunk_bytes: of the decompressed file.
        any_line_end: whether carriage returns, and those with a line feed, become line feeds.

    Raises:
        ValueError: the file cannot be read or decoded at all, its compression is damaged, or the
            library for it is not installed.
    """
    if codecs.lookup(encoding).name == "utf-8":
        encoding = marked_encoding(first_bytes(path, 4)) or encoding
    decoder: Any = codecs.getincrementaldecoder(encoding)(errors="replace")
    decoder = io.IncrementalNewlineDecoder(decoder, translate=True) if any_line_end else decoder
    position = 0
    try:
        with path.open("rb") as raw, decompressed(raw, path) as file:
            while chunk := file.read(chunk_bytes):
                yield decoder.decode(chunk)
                progress(raw.tell() - position)
                position = raw.tell()
            progress(raw.tell() - position)
            yield decoder.decode(b"", final=True)
    except read_errors() as error:
        raise ValueError(f"{path} cannot be read to its end: {reason_of(error)}.") from error


def first_bytes(path: Path, size: int) -> bytes:
    """Returns how a file begins, decompressed; nothing if it cannot be read: reading says why."""
    try:
        with path.open("rb") as raw, decompressed(raw, path) as file:
            return file.read(size)
    except read_errors():
        return b""


def marked_encoding(content: bytes) -> str | None:
    """Returns the codec that the mark of byte order at the beginning tells, None without one."""
    return next((codec for mark, codec in _MARKS if content.startswith(mark)), None)


def decompressed(raw: BinaryIO, path: Path) -> contextlib.AbstractContextManager[Any]:
    """Returns the content of a file, open at its beginning, decompressed if it is compressed.

    Raises:
        ValueError: it is compressed by Zstandard, and the library is not installed.
    """
    magic = raw.read(4)
    raw.seek(0)
    for start, opened in _OPENED.items():
        if magic.startswith(start):
            return opened(raw)
    if magic == _ZSTANDARD:
        library = import_extra("backports.zstd", "zstd", f"{path} is compressed by Zstandard")
        return library.ZstdFile(raw)
    return contextlib.nullcontext(raw)


def read_errors() -> tuple[type[Exception], ...]:
    """Returns what reading and decoding such a file may raise."""
    errors: list[type[Exception]] = [OSError, EOFError, zlib.error, lzma.LZMAError, UnicodeError]
    with contextlib.suppress(ImportError):
        from backports import zstd

        errors.append(zstd.ZstdError)
    return tuple(errors)

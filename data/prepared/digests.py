"""Digests of files, begun beside something slow if that is known early."""

from __future__ import annotations

import hashlib
import os
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import TypeVar

from towers.data.folders import files_below, hash_file, reason_of
from towers.data.text import TextCodec

Item = TypeVar("Item")
Identity = tuple[int, int, int, int]


def digest_files(labelled: Iterable[tuple[str, Path]]) -> str:
    """Returns a digest of files and of what is said of each; ValueError if one cannot be read."""
    digest = hashlib.blake2b(digest_size=16)
    for label, path in labelled:
        digest.update(os.fsencode(f"{label}|{digest_file(path)}\n"))
    return digest.hexdigest()


def identities_of(files: Iterable[Path]) -> dict[Path, Identity]:
    """Returns what tells each file from a changed one; ValueError if one cannot be read."""
    return {path: _found(path, _identity) for path in files}


def unchanged(items: Iterable[Item], identities: Mapping[Path, Identity]) -> Iterator[Item]:
    """Yields what is read from files; ValueError at the end if one changed since its digest."""
    yield from items
    for path, identity in identities.items():
        if _found(path, _identity) != identity:
            raise ValueError(
                f"{path}: expected a file that stays as it is, found that it changed while it was "
                "read. Start again when it is whole."
            )


def digest_of(codec: TextCodec) -> str:
    """Returns a digest of a codec's files."""
    with tempfile.TemporaryDirectory() as folder:
        codec.save(folder)
        return digest_files((path.name, path) for path in files_below(Path(folder)))


def digest_file(path: Path) -> str:
    """Returns the digest of a file's content; ValueError if it cannot be read."""

    def digest(path: Path) -> str:
        begun = _begun.pop(_identity(path), None)
        return begun.result() if begun else _digest_content(path)

    return _found(path, digest)


def _found(path: Path, find: Callable[[Path], Item]) -> Item:
    try:
        return find(path)
    except OSError as error:
        raise ValueError(
            f"{path}: expected a file to read, found: {reason_of(error)}. Check the path and its "
            "permissions."
        ) from error


def begin_digests(paths: Iterable[str | os.PathLike[str]]) -> None:
    """Begins the digests of files beside what follows, such as an import; `digest_file` takes them.

    Those of folders, and of what is no file, do not begin. What `digest_file` finds changed it
    reads again.
    """
    files = {_identity(path): path for path in map(Path, paths) if path.is_file()}
    begun: dict[Identity, Future[str]] = {identity: Future() for identity in files}
    _begun.update(begun)

    def digest_all() -> None:
        for identity, path in files.items():
            try:
                begun[identity].set_result(_digest_content(path))
            except Exception as error:  # `digest_file` waits for it, and raises it.
                begun[identity].set_exception(error)

    threading.Thread(target=digest_all, daemon=True, name="digests").start()


_begun: dict[Identity, Future[str]] = {}


def _identity(path: Path) -> Identity:
    """Returns what a file has by any of its names, and another if its content was changed."""
    found = path.stat()
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def _digest_content(path: Path) -> str:
    return hash_file(path, hashlib.blake2b(digest_size=16))

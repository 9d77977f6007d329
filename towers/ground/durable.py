"""Durable files and folders: whole or not there at all, and on the disk once they have their name.

Everything that is to outlive this process is written through this module.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

PARTIAL = ".partial"


def write_file(path: str | Path, content: bytes) -> None:
    """Writes a file so that its old content stays until the new one is on the disk.

    What a killed process left half written is replaced. A file that holds the content already
    stays as it is.

    Raises:
        OSError: the file or its folder cannot be written.
    """
    path = Path(path)
    partial = path.with_name(f".{path.name}{PARTIAL}")
    make_folder(path.parent)
    if path.is_file() and path.read_bytes() == content:
        partial.unlink(missing_ok=True)
        sync_folder(path.parent)  # The process that wrote it may have been killed before it did.
        return
    with durable_file(path, partial) as file:
        file.write(content)


@contextlib.contextmanager
def durable_file(path: Path, partial: Path) -> Iterator[BinaryIO]:
    """The scope in which to write a file that becomes `path` at the end; not after an error.

    Args:
        path: the file; its old content stays until the new content is on the disk.
        partial: its name until then, in the same folder. An error removes this file.
    """
    try:
        with open(partial, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)
    except BaseException:
        with contextlib.suppress(OSError):
            partial.unlink()
        raise
    sync_folder(path.parent)


def publish(unfinished: Path, path: Path) -> None:
    """Gives a file or a folder its name, once all that is in it is on the disk.

    Raises:
        OSError: something cannot be written, or `path` is a folder that is not empty.
    """
    for entry in [*unfinished.rglob("*"), unfinished]:
        if entry.is_dir():
            sync_folder(entry)
        elif not entry.is_symlink():
            sync(entry)
    os.replace(unfinished, path)
    sync_folder(path.parent)


def make_folder(folder: Path) -> None:
    """Makes a folder, and the missing ones above it, so that their names are on the disk."""
    missing = [one for one in (folder, *folder.parents) if not one.exists()]
    for one in reversed(missing):
        one.mkdir(exist_ok=True)
        sync_folder(one.parent)


def sync_folder(folder: Path) -> None:
    """Waits until the names in a folder are on the disk, where its file system can do that."""
    with contextlib.suppress(OSError):
        sync(folder)


def sync(path: Path) -> None:
    """Waits until what a file holds, or the names in a folder, are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

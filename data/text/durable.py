"""Durable files and folders: whole or not there at all, and on the disk once they have their name.

All of the data and the scripts write through this module. It is in this package because a copy of
the package answers beside an exported model.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

PARTIAL = ".partial"


def write_file(path: str | Path, content: bytes) -> None:
    """Writes a file so that its old content stays until the new one is on the disk.

    What a killed process left half written is replaced. A file that holds the content already
    stays as it is.

    Raises:
        OSError: the file or its folder cannot be written.
    """
    path = Path(path)
    make_folder(path.parent)
    partial = path.with_name(f".{path.name}{PARTIAL}")
    try:
        if path.is_file() and path.read_bytes() == content:
            sync_folder(path.parent)  # It may have been killed before it did.
            return
        partial.write_bytes(content)
        publish(partial, path)
    finally:
        partial.unlink(missing_ok=True)


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


def sync(path: Path) -> None:
    """Waits until what a file holds, or the names in a folder, are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_folder(folder: Path) -> None:
    """Waits until the names in a folder are on the disk, where its file system can do that."""
    with contextlib.suppress(OSError):
        sync(folder)

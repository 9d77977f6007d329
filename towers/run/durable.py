"""Durable files: a file gets its name only when it is complete and on the disk."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO


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


def make_folder(folder: Path) -> None:
    """Makes a folder and its missing parents, and waits until their names are on the disk."""
    missing = [one for one in (folder, *folder.parents) if not one.exists()]
    for one in reversed(missing):
        one.mkdir(exist_ok=True)
        sync_folder(one.parent)


def sync_folder(folder: Path) -> None:
    """Waits until the names in a folder are on the disk, if the file system supports it."""
    with contextlib.suppress(OSError):
        sync_file(folder)


def sync_file(path: Path) -> None:
    """Waits until what a file holds is on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

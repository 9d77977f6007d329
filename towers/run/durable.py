"""Durable files: whole or not there at all, and on the disk once they have their name."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO


@contextlib.contextmanager
def durable_file(path: Path, partial: Path) -> Iterator[BinaryIO]:
    """The scope in which a file is written that becomes `path` at its end, or not at all.

    Args:
        path: the file, whose old content stays until the new one is on the disk.
        partial: the name until then, in the same folder. After an error it is removed.
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
    """Makes a folder, and the missing ones above it, so that their names are on the disk."""
    missing = [one for one in (folder, *folder.parents) if not one.exists()]
    for one in reversed(missing):
        one.mkdir(exist_ok=True)
        sync_folder(one.parent)


def sync_folder(folder: Path) -> None:
    """Waits until the names in a folder are on the disk, where its file system can do that."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

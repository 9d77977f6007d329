"""The lock of a file, which one process at a time has until it ends, however that ends.

It is `flock`. NFS from version 3 on locks across machines; some disks cannot lock at all.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from pathlib import Path


def open_locked(path: Path, busy: Callable[[int], None], warn: Callable[[OSError], None]) -> int:
    """Returns the descriptor of a lock file that this process alone has locked.

    Args:
        path: the file; it is made if there is none. Whoever has locked it removes it in the end.
        busy: called with the file's descriptor whenever another process has it; it waits or raises.
        warn: called if the disk cannot lock; the file is open then, and locked by nobody.

    Raises:
        OSError: the file cannot be opened.
    """
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            lock(descriptor)
            if is_at(descriptor, path):
                return descriptor
        except BlockingIOError:
            try:
                busy(descriptor)
            except BaseException:
                os.close(descriptor)
                raise
        except OSError as error:
            warn(error)
            return descriptor
        os.close(descriptor)


def lock(descriptor: int) -> None:
    """Locks an open file; BlockingIOError if another process has, OSError if that is impossible."""
    try:
        import fcntl
    except ImportError as error:
        raise OSError("this system has no flock") from error
    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


def is_at(descriptor: int, path: Path) -> bool:
    """Returns whether an open file still has its path: the process before may have removed it."""
    with contextlib.suppress(FileNotFoundError):
        return os.path.samestat(os.fstat(descriptor), path.stat())
    return False

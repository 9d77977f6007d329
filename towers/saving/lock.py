"""The lock of a folder: one process at a time trains in it, and who that is can be read.

Where a disk cannot lock at all, the process goes on and says so.
"""

from __future__ import annotations

import contextlib
import datetime
import os
import shlex
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from towers.ground.durable import make_folder
from towers.ground.locks import is_at, lock, open_locked

LOCK = ".lock"
SECONDS = 1.0  # `lock_holder` has a lock for a moment; a training has it longer.
HELD: dict[Path, int] = {}  # Descriptors of the locks that this process has, by folder.


@contextlib.contextmanager
def locked(folder: str | os.PathLike[str]) -> Iterator[None]:
    """The scope in which no other process enters the same scope for this folder.

    The folder is made, and removed again if it is empty in the end. If the disk cannot lock, a line
    is printed instead.

    Args:
        folder: such as a run's directory.

    Raises:
        ValueError: another process is in the scope; it is named.
        OSError: the folder or the lock in it cannot be made.
    """
    path = Path(folder) / LOCK
    is_new = not path.parent.exists()
    make_folder(path.parent)
    descriptor = open_alone(path)
    held = path.parent.absolute()
    try:
        HELD[held] = descriptor
        os.truncate(descriptor, 0)
        os.write(descriptor, describe_process().encode("utf-8", "backslashreplace"))
        yield
    finally:
        HELD.pop(held, None)
        if is_at(descriptor, path):  # Else the folder was moved, and this is another's.
            path.unlink()  # While it is locked.
        os.close(descriptor)
        if is_new:
            with contextlib.suppress(OSError):  # It is not empty.
                path.parent.rmdir()


def check_in_place(folder: Path) -> None:
    """Raises OSError if a folder that this process has locked is no more at its path."""
    descriptor, path = HELD.get(folder.absolute()), folder / LOCK
    if descriptor is None:
        return
    is_anothers = path.exists() and not is_at(descriptor, path)
    if is_anothers or not folder.exists():
        raise OSError(
            f"{folder} was moved, removed or replaced while it was written. No more is saved; its "
            "checkpoints are where it was moved to. Move it back, and run the same command again."
        )


@contextlib.contextmanager
def locked_run(run_dir: str | os.PathLike[str]) -> Iterator[None]:
    """The scope of `locked` for a run directory, whose OSError names it."""
    with contextlib.ExitStack() as scopes:
        try:
            scopes.enter_context(locked(run_dir))
        except OSError as error:
            reason = f"cannot be made or written: {error.strerror}"
            raise OSError(f"run_dir {run_dir} {reason}. Give another one.") from error
        yield


def lock_holder(folder: str | os.PathLike[str]) -> str | None:
    """Returns a description of the process that is in the scope of a folder's lock, or None.

    It is None, too, on a disk that cannot lock: there it is not known.
    """
    path = Path(folder) / LOCK
    try:
        try:
            descriptor = os.open(path, os.O_RDWR)  # NFS locks no file that is only read.
        except PermissionError:  # Another user's run.
            descriptor = os.open(path, os.O_RDONLY)
    except OSError:  # There is no lock, or it may not be read.
        return None
    try:
        lock(descriptor)
    except BlockingIOError:
        return read_holder(descriptor)
    except OSError:
        return None
    finally:
        os.close(descriptor)
    return None


def read_holder(descriptor: int) -> str:
    """Returns what the process that has locked an open file wrote into it about itself."""
    return os.read(descriptor, 500).decode("utf-8", "replace") or "another process"


def open_alone(path: Path) -> int:
    """Returns the descriptor of a lock file that this process alone has locked."""
    limit = time.monotonic() + SECONDS

    def busy(descriptor: int) -> None:
        if time.monotonic() >= limit:
            raise ValueError(
                f"{path.parent} is in use by {read_holder(descriptor)}. Wait until it ends, stop "
                "it, or choose another run directory."
            )
        time.sleep(SECONDS / 20)

    def warn(error: OSError) -> None:
        print(
            f"warning: {path.parent} cannot be locked ({error.strerror or error}): make sure that "
            "no other process trains in it"
        )

    return open_locked(path, busy, warn)


def describe_process() -> str:
    """Returns the number, the machine, the start and the command of this process."""
    now = datetime.datetime.now().astimezone().isoformat(" ", "seconds")
    command = shlex.join(sys.argv)[:200]
    return f"process {os.getpid()} on {socket.gethostname()} since {now} ({command})"

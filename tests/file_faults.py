"""What a process does to files: recorded in order, or ended at a chosen operation."""

import os
import signal
import sys

WRITING = os.O_WRONLY | os.O_RDWR
EVENTS = {"os.rename": "rename", "os.mkdir": "mkdir", "os.remove": "remove"}


class Watch:
    """Hears of every operation below a folder before it happens, until the process ends.

    Args:
        folder: which operations count.
        last: the number of the operation at which the process is killed, or the name of the
            file that is to be published then; None to let it live.
        power_cut: whether, besides, every file loses what was not fsynced.

    Attributes:
        operations: tuples (kind, path, ...) with kind one of write (opened for it), fsync,
            rename, mkdir and remove.
    """

    def __init__(self, folder, *, last=None, power_cut=False):
        self._folder = os.path.abspath(folder)
        self._last = last
        self._power_cut = power_cut
        self._fsync = os.fsync
        self._synced = {}  # Open descriptors, so that an inode's number stays its own.
        self.operations = []
        for path in self._files():
            self._remember(os.open(path, os.O_RDONLY))
        os.fsync = self._sync
        sys.addaudithook(self._hear)

    def _files(self):
        for folder, _, names in os.walk(self._folder):
            yield from (os.path.join(folder, name) for name in names)

    def _remember(self, descriptor):
        self._synced[os.fstat(descriptor).st_ino] = descriptor

    def _sync(self, descriptor):
        self._take("fsync", os.readlink(f"/proc/self/fd/{descriptor}"))
        self._fsync(descriptor)
        self._remember(os.dup(descriptor))

    def _hear(self, event, arguments):
        if event == "open" and isinstance(arguments[0], str | bytes) and arguments[2] & WRITING:
            self._take("write", arguments[0])
        elif event in EVENTS:
            paths = arguments[:2] if event == "os.rename" else arguments[:1]
            self._take(EVENTS[event], *paths)

    def _take(self, kind, *paths):
        paths = [os.path.abspath(os.fsdecode(path)) for path in paths]
        if not any(f"{path}/".startswith(f"{self._folder}/") for path in paths):
            return
        named = kind == "rename" and os.path.basename(paths[-1]) == self._last
        if named or len(self.operations) + 1 == self._last:
            self._die()
        self.operations.append((kind, *paths))

    def _die(self):
        for path in self._files():
            if self._power_cut and os.stat(path).st_ino not in self._synced:
                os.truncate(path, 0)
        os.kill(os.getpid(), signal.SIGKILL)


def assert_durable(operations):
    """Whatever got a name was on the disk before, and its name is afterwards."""
    published = [index for index, (kind, *_) in enumerate(operations) if kind == "rename"]
    assert published
    for index, (kind, *paths) in enumerate(operations):
        later = operations[index + 1 :]
        if kind == "rename":
            assert ("fsync", os.path.dirname(paths[1])) in later, f"the folder of {paths[1]}"
        elif kind == "mkdir":
            assert ("fsync", os.path.dirname(paths[0])) in later, f"the folder of {paths[0]}"
        elif kind == "write":
            until = [at for at in published if at > index and holds(operations[at][1], paths[0])]
            assert until, f"{paths[0]} is written under its own name"
            assert ("fsync", paths[0]) in operations[index : until[0]], f"the content of {paths[0]}"


def holds(path, other):
    """Returns whether one path is the other, or a folder above it."""
    return f"{other}/".startswith(f"{path}/")

"""Files that grow for a long time, and the journal that says how much of them is on the disk."""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

from towers.ground.durable import sync_folder, write_file

JOURNAL = "journal.json"
SECONDS_BETWEEN_SAVES = 10.0  # A killed process loses at most this much work.

Own = TypeVar("Own", bound="JournalledFiles")


class JournalledFiles:
    """Files that are appended to side by side.

    What a killed process wrote behind the last line of its journal is cut off, so that the files
    fit each other and the state.

    Used as a context; what was not saved is lost at its end.

    Args:
        folder: of the journal; what an earlier process journalled in it is kept.
        paths: {name of a file: its path}.
        state: at the beginning.

    Attributes:
        state: what goes into the journal, as JSON; that of the last save at first.
    """

    def __init__(self, folder: Path, paths: Mapping[str, Path], state: dict[str, Any]):
        self._folder = folder
        path = folder / JOURNAL
        journal = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {"sizes": {}}
        if journal["sizes"].keys() != paths.keys():  # Of an earlier version, or none.
            journal = {"state": state, "sizes": dict.fromkeys(paths, 0)}
        self.state: dict[str, Any] = journal["state"]
        self._sizes: dict[str, int] = journal["sizes"]
        self._files = {name: _opened(path, self._sizes[name]) for name, path in paths.items()}
        for parent in {path.parent for path in paths.values()}:
            sync_folder(parent)
        self._saved = time.monotonic()

    def __enter__(self: Own) -> Own:
        return self

    def __exit__(self, *_: object) -> None:
        for file in self._files.values():
            with contextlib.suppress(OSError):  # A full disk was said when it was written to.
                file.close()

    def append(self, name: str, content: bytes | memoryview) -> None:
        """Writes bytes at the end of a file."""
        self._files[name].write(content)
        self._sizes[name] += memoryview(content).nbytes

    @property
    def is_due(self) -> bool:
        """Whether the last save is so long ago that another one is due."""
        return time.monotonic() - self._saved >= SECONDS_BETWEEN_SAVES

    def save(self) -> None:
        """Makes sure that all is on the disk, then journals it with the state."""
        for file in self._files.values():
            file.flush()
            os.fsync(file.fileno())
        journal = {"state": self.state, "sizes": self._sizes}
        write_file(self._folder / JOURNAL, json.dumps(journal).encode() + b"\n")
        self._saved = time.monotonic()


def _opened(path: Path, size: int) -> BinaryIO:
    """Returns a file, cut behind what the journal has, at its end."""
    path.touch()
    file = path.open("r+b")
    file.truncate(size)
    file.seek(0, os.SEEK_END)
    return file

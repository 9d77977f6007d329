"""Checkpoints of a run: the latest and the best."""

from __future__ import annotations

import contextlib
import errno
import math
import os
import warnings
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from towers.ground.arguments import check_at_least
from towers.ground.checkpoint_names import BEST, OF_STEP, SUFFIX
from towers.ground.durable import make_folder
from towers.saving.checkpoint_files import (
    PARTIAL,
    Checkpoint,
    DamagedCheckpointError,
    Groups,
    named_failure,
    read_checkpoint,
    serial_of,
    take_snapshot,
    write_snapshot,
)
from towers.saving.lock import check_in_place

WRITING: dict[Path, Future[None]] = {}  # What is written beside the training, by folder.


class CheckpointFolder(contextlib.AbstractContextManager["CheckpointFolder"]):
    """The checkpoints of one run: the latest ones and the best.

    The latest is the one that was saved last. A run that went back from step 30 to step 10 and has
    saved step 11 is at step 11: its checkpoints before are those up to step 10, and those of steps
    20 and 30 belong to a branch that was left.

    A checkpoint may be written beside the training (`wait=False`), one at a time. A failure is
    raised by the next save, the next read of the folder, or `wait`, even through another object of
    this process. As a context manager, the folder waits at the end.

    Args:
        folder: the folder of the checkpoints; the first save makes it.
        keep: the number of latest checkpoints to keep, at least 1.
    """

    def __init__(self, folder: str | os.PathLike[str], *, keep: int = 3):
        check_at_least(1, keep=keep)
        self.path = Path(folder)
        self._keep = keep
        self._pool: ThreadPoolExecutor | None = None

    def __exit__(self, _: object, error: BaseException | None, *__: object) -> None:
        try:
            self.wait()
        except OSError as failure:
            if error is None:
                raise
            warnings.warn(str(failure), RuntimeWarning, stacklevel=2)

    def wait(self) -> None:
        """Returns when all that was saved is on the disk; raises OSError if it could not be."""
        writing = WRITING.pop(self.path.absolute(), None)
        if writing is not None:
            writing.result()

    def save(
        self, step: int, groups: Groups, state: Mapping[str, Any], *, wait: bool = True
    ) -> Path:
        """Saves a checkpoint, removes all but the `keep` latest, and returns its path.

        Checkpoints of later steps, left by a run that resumed from an earlier one, stay until
        the run has passed their steps.

        Args:
            step: the step after which it is saved.
            groups: by group name, the variables to save, in order.
            state: other values to save, of JSON types.
            wait: whether it is on the disk when this returns. Otherwise it is written while the
                training goes on, with the values of this moment all the same.

        Raises:
            OSError: this checkpoint, or the one before, cannot be written.
        """
        path = self._step_path(step)
        self._prepare(path)
        serial = next_serial(self._serials())
        snapshot = take_snapshot(step, groups, state, serial=serial)

        def write() -> None:
            write_snapshot(path, snapshot)
            self.remove_old(step)

        return self._write(write, path, wait)

    def remove_old(self, step: int) -> None:
        """Removes all checkpoints before a step but the `keep` latest; a killed save did not."""
        serials = self._serials()
        kept = line_of(serials)[-self._keep :]
        for old in serials:
            if old < step and old not in kept:
                self._step_path(old).unlink(missing_ok=True)

    def save_best(
        self,
        step: int,
        groups: Groups,
        state: Mapping[str, Any],
        *,
        resumable: bool = False,
        wait: bool = True,
    ) -> Path:
        """Saves a checkpoint as the best one, replaces the previous best, and returns its path.

        Args:
            step, groups, state, wait: as in `save`.
            resumable: whether a run may go on from it as from those of `save`: they have the same
                groups and state, and its variables hold no averages. If it was saved last, it is
                the latest.
        """
        path = self.best_path
        self._prepare(path)
        serial = next_serial(self._serials()) if resumable else 0
        snapshot = take_snapshot(step, groups, state, serial=serial)
        return self._write(lambda: write_snapshot(path, snapshot), path, wait)

    def _prepare(self, path: Path) -> None:
        """Waits for the save before, makes the folder, and removes what a killed process left."""
        self.wait()
        check_in_place(self.path.parent)
        with named_failure(path):
            if self.path.exists() and not self.path.is_dir():
                raise NotADirectoryError(errno.ENOTDIR, f"{self.path} is not a folder")
            make_folder(self.path)
            for leftover in self.path.glob(f"*{SUFFIX}{PARTIAL}"):
                leftover.unlink(missing_ok=True)

    def _write(self, write: Callable[[], None], path: Path, wait: bool) -> Path:
        """Calls `write` here, or in the thread that writes beside the training."""
        if wait:
            write()
        else:
            self._pool = self._pool or ThreadPoolExecutor(1, "checkpoint")
            WRITING[self.path.absolute()] = self._pool.submit(write)
        return path

    def latest(self) -> Checkpoint | None:
        """Returns the readable checkpoint saved last, or None if nothing has been saved.

        Damaged checkpoints are skipped with a RuntimeWarning.

        Raises:
            DamagedCheckpointError: all checkpoints are damaged.
        """
        self.wait()
        damages: list[str] = []
        for path in self._newest_first():
            try:
                checkpoint = read_checkpoint(path)
            except DamagedCheckpointError as damage:
                damages.append(str(damage))
                continue
            except FileNotFoundError:  # The training has replaced it by a newer one.
                return self.latest()
            if damages:
                message = f"{' '.join(damages)} {checkpoint.path} is used instead."
                warnings.warn(message, RuntimeWarning, stacklevel=2)
            return checkpoint
        if damages:
            raise DamagedCheckpointError(
                f"Every checkpoint in {self.path} is damaged. {' '.join(damages)} "
                "Remove them to start over."
            )
        return None

    def newest(self) -> tuple[int, str] | None:
        """Returns serial and name of the file that was saved last, or None without any.

        A later save has a larger serial. Files whose manifests are damaged are passed over.
        """
        self.wait()
        found = ((serial_of(path), path.name) for path in self._newest_first())
        return next(((serial, name) for serial, name in found if serial is not None), None)

    def best(self) -> Checkpoint | None:
        """Returns the best checkpoint, or None; raises DamagedCheckpointError if it is damaged."""
        self.wait()
        return read_checkpoint(self.best_path) if self.best_path.exists() else None

    def of_step(self, step: int) -> Checkpoint:
        """Returns the checkpoint of a step; ValueError that lists the steps that have one."""
        if self._step_path(step).exists():
            return read_checkpoint(self._step_path(step))
        best = read_checkpoint(self.best_path) if self.has_best else None
        if best is not None and best.step == step:
            return best
        steps = sorted({*self._serials(), *([best.step] if best else [])})
        known = f"It has step {', '.join(map(str, steps))}." if steps else ""
        raise ValueError(f"{self.path} has no checkpoint of step {step}. {known}".rstrip())

    @property
    def best_path(self) -> Path:
        """The file of the best checkpoint."""
        return self.path / BEST

    @property
    def has_best(self) -> bool:
        """Whether there is a best checkpoint whose manifest can be read."""
        self.wait()
        return self.best_path.exists() and serial_of(self.best_path) is not None

    def _newest_first(self) -> list[Path]:
        """Returns the files from which a run may go on.

        A file without a readable manifest may be the newest: it comes first. A best from which a
        run may go on is the newest if it was saved after all others, as by a process that was
        killed soon afterwards. Otherwise it is the last resort.
        """
        serials = self._serials()
        damaged = [step for step, serial in serials.items() if serial is None]
        line = line_of({step: serials[step] for step in serials if step not in damaged})
        paths = list(map(self._step_path, [*damaged, *reversed(line)]))
        best = serial_of(self.best_path) if self.best_path.exists() else 0
        if best != 0:
            is_newest = best is not None and best >= next_serial(serials)
            paths.insert(len(damaged) if is_newest else len(paths), self.best_path)
        return paths

    def _step_path(self, step: int) -> Path:
        return self.path / f"step-{step:08d}{SUFFIX}"

    def _serials(self) -> dict[int, int | None]:
        """Returns the serial of each step that has a file; None if its manifest is damaged."""
        try:
            names = os.listdir(self.path)
        except FileNotFoundError:
            return {}
        matches = map(OF_STEP.fullmatch, names)
        serials: dict[int, int | None] = {}
        for step in (int(match[1]) for match in matches if match):
            with contextlib.suppress(FileNotFoundError):  # A training has removed it since.
                serials[step] = serial_of(self._step_path(step))
        return serials


def next_serial(serials: Mapping[int, int | None]) -> int:
    """Returns the serial of a checkpoint that is saved after others.

    >>> next_serial({10: 1, 20: 4, 30: None})
    5
    """
    return 1 + max((known for known in serials.values() if known is not None), default=0)


def line_of(serials: Mapping[int, int | None]) -> list[int]:
    """Returns the steps on the way to the checkpoint saved last, in ascending order.

    Args:
        serials: the serial of each step; None if unknown, which leaves the step in.

    >>> line_of({10: 1, 20: 2, 30: 3, 11: 4, 12: 5})
    [10, 11, 12]
    """
    line = [step for step, serial in serials.items() if serial is None]
    known = [(serial, step) for step, serial in serials.items() if serial is not None]
    next_step: float = math.inf
    for _, step in sorted(known, reverse=True):
        if step < next_step:
            line.append(step)
            next_step = step
    return sorted(line)

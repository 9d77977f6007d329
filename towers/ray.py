"""Towers in Ray Train: `Run` reports to Ray, and keeps checkpoints where its storage is.

A worker of Ray's `TensorflowTrainer` joins the others by itself, through TF_CONFIG. Imported by
name, `import towers.ray`; nothing else needs Ray (`pip install -e '.[ray]'`).
"""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import keras

from towers.ground.checkpoint_names import BEST
from towers.ground.extras import import_extra
from towers.saving.checkpoint_folder import CheckpointFolder

ray_train = import_extra("ray.train", "ray", "towers.ray trains on Ray")
collective = import_extra("ray.train.collective", "ray", "towers.ray trains on Ray")

CHECKPOINTS = "checkpoints"
OWN = (".ray", ".lock")  # Of this machine's folder alone.
MOST_COPIES = 2  # One that is written to the storage, and one that waits.


class Run(keras.callbacks.Callback):
    """A training in a worker of Ray's, for the callbacks of `towers.fit` or a loop of your own.

    Each worker makes one and gives `folder` as `run_dir`. After each epoch of `towers.fit`, all
    report its logs to Ray, and the chief its newest checkpoint, which Ray keeps where
    `RunConfig(storage_path=...)` says. When Ray starts the workers again, or the same program runs
    again, the chief fetches it from there: it may be on another machine.

    Args:
        folder: for the run on this machine. None: a new temporary one.

    Attributes:
        folder: the folder.
    """

    def __init__(self, folder: str | os.PathLike[str] | None = None):
        super().__init__()
        self.folder = Path(folder or tempfile.mkdtemp(prefix="towers-"))
        logging.getLogger("tensorflow").setLevel(logging.WARNING)  # Ray has it tell much.
        self._is_chief = ray_train.get_context().get_world_rank() == 0
        self._logs: dict[str, float] = {}
        self._is_due = False  # Whether an epoch was not reported yet.
        self._copied: tuple[int, str, int] | None = None  # The checkpoint that was reported last.
        # What a lost worker left here. No new copy is made before all workers are here.
        shutil.rmtree(self.folder / OWN[0], ignore_errors=True)
        if self._is_chief:
            self._fetch()
        collective.barrier()  # The others may look into the same folder.

    def report(self, metrics: Mapping[str, Any], *, last: bool = False) -> None:
        """Reports metrics, and the chief's newest checkpoint; every worker must call it as often.

        Ray copies the checkpoint beside the training, each once. Where the training is faster than
        the storage, checkpoints are left out while two are on their way, since all of them would
        fill the disk. A loop of your own calls it after each `Trainer.train(epochs=...)`.

        Args:
            metrics: names and numbers.
            last: whether the training ends here, so that its checkpoint is never left out.
        """
        checkpoints = CheckpointFolder(self.folder / CHECKPOINTS)
        checkpoints.wait()
        newest = checkpoints.newest() if self._is_chief else None
        # A best one replaces another of its name, and may have its serial.
        saved = newest and (*newest, (checkpoints.path / newest[1]).stat().st_mtime_ns)
        if saved == self._copied or (self._num_copies() >= MOST_COPIES and not last):
            newest = None
        else:
            self._copied = saved
        ray_train.report(
            dict(metrics),
            checkpoint=newest and ray_train.Checkpoint.from_directory(self._copy(newest[1])),
            checkpoint_upload_mode=ray_train.CheckpointUploadMode.ASYNC,  # Removes the copy.
        )

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Reports the epoch before, whose checkpoint is saved by now."""
        if self._is_due:
            self.report(self._logs)
        self._is_due = False

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Notes what is to be reported."""
        self._logs = {name: float(value) for name, value in (logs or {}).items()}
        self._logs["epoch"] = epoch
        self._is_due = True

    def on_train_end(self, logs: Any = None) -> None:
        """Reports the last epoch, and the last checkpoint wherever it was saved."""
        self.report(self._logs, last=True)

    def _num_copies(self) -> int:
        """Returns how many checkpoints are on their way to the storage."""
        copies = self.folder / OWN[0]
        return len(os.listdir(copies)) if copies.exists() else 0

    def _copy(self, newest: str) -> str:
        """Returns a folder with what Ray is to keep: the run with its newest checkpoint."""

        def left_out(folder: str, names: list[str]) -> set[str]:
            is_of_checkpoints = folder == os.fspath(self.folder / CHECKPOINTS)
            return {*OWN, *(set(names) - {newest, BEST} if is_of_checkpoints else ())}

        copies = self.folder / OWN[0]
        copies.mkdir(exist_ok=True)
        copy = tempfile.mkdtemp(dir=copies)  # A step may be reported again while Ray copies.
        shutil.copytree(
            self.folder, copy, ignore=left_out, copy_function=os.link, dirs_exist_ok=True
        )
        return copy

    def _fetch(self) -> None:
        """Copies Ray's checkpoint into the folder, unless that holds a newer one."""
        checkpoint = ray_train.get_checkpoint()
        if checkpoint is None:
            return
        with checkpoint.as_directory() as copy:
            stored, own = (
                CheckpointFolder(run / CHECKPOINTS).newest() for run in (Path(copy), self.folder)
            )
            if stored is not None and (own is None or own < stored):
                shutil.copytree(copy, self.folder, dirs_exist_ok=True)

"""Checkpoints: the last few and the best of a run, and how one is put back into variables."""

from __future__ import annotations

import difflib
import errno
import os
import re
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf

from towers.run.checkpoint_files import (
    PARTIAL,
    Checkpoint,
    DamagedCheckpointError,
    Groups,
    SavedArray,
    named_failure,
    path_of,
    read_checkpoint,
    tensorflow_variable,
    write_checkpoint,
)

SUFFIX = ".ckpt.npz"
LONGEST_LIST = 12


class CheckpointFolder:
    """The checkpoints of one run: the last few and the best.

    Args:
        folder: where they are; it is made by the first save.
        keep: how many of the last to keep, at least 1.
    """

    def __init__(self, folder: str | os.PathLike[str], *, keep: int = 3):
        if keep < 1:
            raise ValueError(f"keep must be at least 1. Received {keep}.")
        self.path = Path(folder)
        self._keep = keep

    def save(self, step: int, groups: Groups, state: Mapping[str, Any]) -> Path:
        """Saves a checkpoint, removes those before the last `keep`, and returns its path.

        Checkpoints of later steps, left by a run that went back, stay until they are replaced.
        """
        path = self._write(f"step-{step:08d}{SUFFIX}", step, groups, state)
        done = [saved for saved in self._saved_steps() if saved <= step]
        for old in done[: -self._keep]:
            self._step_path(old).unlink(missing_ok=True)
        return path

    def save_best(self, step: int, groups: Groups, state: Mapping[str, Any]) -> Path:
        """Saves a checkpoint in place of the best one so far, and returns its path."""
        return self._write(f"best{SUFFIX}", step, groups, state)

    def latest(self) -> Checkpoint | None:
        """Returns the newest readable checkpoint, or None if nothing has been saved.

        A damaged one is passed over with a RuntimeWarning.

        Raises:
            DamagedCheckpointError: there are checkpoints, and all are damaged.
        """
        damages: list[str] = []
        for step in reversed(self._saved_steps()):
            try:
                checkpoint = read_checkpoint(self._step_path(step))
            except DamagedCheckpointError as damage:
                damages.append(str(damage))
                continue
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

    def best(self) -> Checkpoint | None:
        """Returns the best checkpoint, or None; raises DamagedCheckpointError."""
        path = self.path / f"best{SUFFIX}"
        return read_checkpoint(path) if path.exists() else None

    def _write(self, name: str, step: int, groups: Groups, state: Mapping[str, Any]) -> Path:
        path = self.path / name
        with named_failure(path):
            if self.path.exists() and not self.path.is_dir():
                raise NotADirectoryError(errno.ENOTDIR, f"{self.path} is not a folder")
            self.path.mkdir(parents=True, exist_ok=True)
            for leftover in self.path.glob(f"*{SUFFIX}{PARTIAL}"):
                leftover.unlink(missing_ok=True)
        write_checkpoint(path, step, groups, state)
        return path

    def _step_path(self, step: int) -> Path:
        return self.path / f"step-{step:08d}{SUFFIX}"

    def _saved_steps(self) -> list[int]:
        """Returns the steps that have a file, in ascending order."""
        try:
            names = os.listdir(self.path)
        except FileNotFoundError:
            return []
        matches = (re.fullmatch(rf"step-(\d{{8,}}){re.escape(SUFFIX)}", name) for name in names)
        return sorted(int(match[1]) for match in matches if match)


def restore(checkpoint: Checkpoint, groups: Groups) -> None:
    """Assigns a checkpoint's values to the variables, all of them or none.

    A variable is known by its place in its group, with its shape, its dtype and its path, of
    which the numbers that Keras appends (`dense_1`) do not count. It stays on its device.

    Args:
        checkpoint: what `read_checkpoint` returned.
        groups: the same groups that were saved, of variables that are built.

    Raises:
        ValueError: groups and checkpoint differ; the message lists where.
    """
    differences = compare(checkpoint.groups, groups)
    if differences:
        raise ValueError(
            f"The checkpoint {checkpoint.path} is not one of this model, and nothing was "
            f"restored. {' '.join(differences)} Build the model with the options it was "
            "trained with."
        )
    for name, variables in groups.items():
        for saved, variable in zip(checkpoint.groups[name], variables, strict=True):
            target = tensorflow_variable(variable)
            with tf.device(target.device):  # Else a table would pass through the GPU's memory.
                target.assign(saved.array)


def compare(saved: Mapping[str, list[SavedArray]], groups: Groups) -> list[str]:
    """Returns a sentence for each kind of difference between a checkpoint and variables."""
    lacking = [f"group '{name}'" for name in groups if name not in saved]
    unused = [f"group '{name}'" for name in saved if name not in groups]
    pairs: list[tuple[SavedArray, keras.Variable | tf.Variable]] = []
    for name in groups:
        if name in saved:
            only_saved, only_given, both = align(saved[name], groups[name])
            unused += only_saved
            lacking += only_given
            pairs += both
    kinds = {
        "Checkpoint lacks": lacking,
        "Unused in checkpoint": unused,
        "Shape differs": [
            f"{path_of(variable)}, checkpoint {list(array.shape)}, model {list(variable.shape)}"
            for (_, array), variable in pairs
            if array.shape != tuple(variable.shape)
        ],
        "Dtype differs": [
            f"{path_of(variable)}, checkpoint {array.dtype.name}, model {dtype_of(variable)}"
            for (_, array), variable in pairs
            if array.dtype.name != dtype_of(variable)
        ],
    }
    return [f"{kind}: {shorten(items)}." for kind, items in kinds.items() if items]


def align(
    saved: list[SavedArray], variables: Sequence[keras.Variable | tf.Variable]
) -> tuple[list[str], list[str], list[tuple[SavedArray, keras.Variable | tf.Variable]]]:
    """Returns paths only in the first, paths only in the second, and the pairs of equal paths."""
    before = [without_numbers(path) for path, _ in saved]
    after = [without_numbers(path_of(variable)) for variable in variables]
    matcher = difflib.SequenceMatcher(None, before, after, autojunk=False)
    only_saved, only_given, pairs = [], [], []
    for kind, start, stop, first, last in matcher.get_opcodes():
        if kind == "equal":
            pairs += list(zip(saved[start:stop], variables[first:last], strict=True))
        else:
            only_saved += [path for path, _ in saved[start:stop]]
            only_given += [path_of(variable) for variable in variables[first:last]]
    return only_saved, only_given, pairs


def without_numbers(path: str) -> str:
    """Returns a path without the numbers that Keras appends to names.

    >>> without_numbers("adam_2/dense_1_kernel_momentum")
    'adam/dense_kernel_momentum'
    """
    return re.sub(r"_\d+(?=[_/]|$)", "", path)


def dtype_of(variable: keras.Variable | tf.Variable) -> str:
    """Returns the name of a variable's dtype."""
    return tf.as_dtype(variable.dtype).name


def shorten(items: Sequence[str]) -> str:
    """Returns the items in one line, of a long list the first few."""
    more = len(items) - LONGEST_LIST
    return "; ".join(items[:LONGEST_LIST]) + (f"; and {more} more" if more > 0 else "")

"""Checkpoints: the latest and the best of a run, and how one is restored into variables."""

from __future__ import annotations

import errno
import math
import os
import re
import warnings
from collections.abc import Mapping, Sequence, Set
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

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
    read_serial,
    tensorflow_variable,
    write_checkpoint,
)
from towers.run.durable import make_folder

SUFFIX = ".ckpt.npz"
LONGEST_LIST = 12

Variable: TypeAlias = keras.Variable | tf.Variable
Pair: TypeAlias = tuple[SavedArray, Variable]


class CheckpointFolder:
    """The checkpoints of one run: the latest ones and the best.

    The latest is the one that was saved last. A run that went back from step 30 to step 10 and has
    saved step 11 is at step 11: its checkpoints before are those up to step 10, and those of steps
    20 and 30 belong to a branch that was left.

    Args:
        folder: the folder of the checkpoints; the first save makes it.
        keep: the number of latest checkpoints to keep, at least 1.
    """

    def __init__(self, folder: str | os.PathLike[str], *, keep: int = 3):
        if keep < 1:
            raise ValueError(f"keep must be at least 1. Received {keep}.")
        self.path = Path(folder)
        self._keep = keep

    def save(self, step: int, groups: Groups, state: Mapping[str, Any]) -> Path:
        """Saves a checkpoint, removes all but the `keep` latest, and returns its path.

        Checkpoints of later steps, left by a run that resumed from an earlier one, stay until
        the run has passed their steps.
        """
        path = self._step_path(step)
        with named_failure(path):
            self._make_folder()
            serials = self._serials()
        serial = 1 + max((known for known in serials.values() if known is not None), default=0)
        write_checkpoint(path, step, groups, state, serial=serial)
        kept = line_of({**serials, step: serial})[-self._keep :]
        for old in serials:
            if old < step and old not in kept:
                self._step_path(old).unlink(missing_ok=True)
        return path

    def save_best(self, step: int, groups: Groups, state: Mapping[str, Any]) -> Path:
        """Saves a checkpoint as the best one, replaces the previous best, and returns its path."""
        path = self.path / f"best{SUFFIX}"
        with named_failure(path):
            self._make_folder()
        write_checkpoint(path, step, groups, state)
        return path

    def latest(self) -> Checkpoint | None:
        """Returns the readable checkpoint saved last, or None if nothing has been saved.

        Damaged checkpoints are skipped with a RuntimeWarning.

        Raises:
            DamagedCheckpointError: all checkpoints are damaged.
        """
        serials = self._serials()
        # A file without a readable manifest may be the newest: it is tried first, and named.
        damaged = [step for step, serial in serials.items() if serial is None]
        line = line_of({step: serials[step] for step in serials if step not in damaged})
        damages: list[str] = []
        for step in [*damaged, *reversed(line)]:
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
        """Returns the best checkpoint, or None; raises DamagedCheckpointError if it is damaged."""
        path = self.path / f"best{SUFFIX}"
        return read_checkpoint(path) if path.exists() else None

    def _make_folder(self) -> None:
        """Makes the folder if there is none, and removes files that a killed process left."""
        if self.path.exists() and not self.path.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, f"{self.path} is not a folder")
        make_folder(self.path)
        for leftover in self.path.glob(f"*{SUFFIX}{PARTIAL}"):
            leftover.unlink(missing_ok=True)

    def _step_path(self, step: int) -> Path:
        return self.path / f"step-{step:08d}{SUFFIX}"

    def _serials(self) -> dict[int, int | None]:
        """Returns the serial of each step that has a file; None if its manifest is damaged."""
        try:
            names = os.listdir(self.path)
        except FileNotFoundError:
            return {}
        matches = (re.fullmatch(rf"step-(\d{{8,}}){re.escape(SUFFIX)}", name) for name in names)
        serials: dict[int, int | None] = {}
        for step in (int(match[1]) for match in matches if match):
            try:
                serials[step] = read_serial(self._step_path(step))
            except DamagedCheckpointError:
                serials[step] = None
        return serials


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


def restore(checkpoint: Checkpoint, groups: Groups) -> None:
    """Assigns a checkpoint's values to the variables, all of them or none.

    Within a group, paths identify variables, without the numbers that Keras adds to automatic
    names (`dense_1`), since these differ between processes. Variables with equal paths are
    identified by their order. A variable stays on its device.

    Args:
        checkpoint: the checkpoint.
        groups: the groups that were saved, with built variables.

    Raises:
        ValueError: groups and checkpoint differ; the message lists where.
    """
    pairs, differences = match_groups(checkpoint.groups, groups)
    if differences:
        raise ValueError(
            f"The checkpoint {checkpoint.path} is not one of this model, and nothing was "
            f"restored. {' '.join(differences)} Build the model with the options it was "
            "trained with."
        )
    for saved, variable in pairs:
        target = tensorflow_variable(variable)
        with tf.device(target.device):  # Else a table would pass through the GPU's memory.
            target.assign(saved.array)


def match_groups(
    saved: Mapping[str, list[SavedArray]], groups: Groups
) -> tuple[list[Pair], list[str]]:
    """Returns pairs of saved value and variable, and a sentence for each kind of difference."""
    matches = [match_variables(saved[name], groups[name]) for name in groups if name in saved]
    pairs = [pair for match in matches for pair in match.pairs]
    kinds = {
        "Checkpoint lacks": [f"group '{name}'" for name in groups if name not in saved]
        + [path for match in matches for path in match.only_given],
        "Unused in checkpoint": [f"group '{name}'" for name in saved if name not in groups]
        + [path for match in matches for path in match.only_saved],
        "Keras numbered these layers in another order, so give them names of your own": [
            difference for match in matches for difference in match.reordered
        ],
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
    return pairs, [f"{kind}: {shorten(items)}." for kind, items in kinds.items() if items]


class Match(NamedTuple):
    """How the variables of a group match those of a checkpoint.

    Attributes:
        pairs: pairs of a saved value and its variable.
        only_saved, only_given: paths without a counterpart.
        reordered: descriptions of variables that only their order identifies, if it changed.
    """

    pairs: list[Pair]
    only_saved: list[str]
    only_given: list[str]
    reordered: list[str]


def match_variables(saved: list[SavedArray], variables: Sequence[Variable]) -> Match:
    """Returns the match of saved values and variables."""
    automatic = automatic_names()
    before = by_name([array.path for array in saved], automatic)
    after = by_name([path_of(variable) for variable in variables], automatic)
    match = Match([], [], [], [])
    for name in {**after, **before}:
        old, new = before.get(name, []), after.get(name, [])
        if len(old) != len(new):
            match.only_saved.extend(without_counterpart(old, new))
            match.only_given.extend(without_counterpart(new, old))
        elif ranks(old) != ranks(new):
            paths = [" and ".join(found.path for found in group) for group in (old, new)]
            match.reordered.append(f"{paths[0]} in the checkpoint, {paths[1]} in the model")
        else:
            places = zip(old, new, strict=True)
            match.pairs.extend((saved[one.place], variables[other.place]) for one, other in places)
    return match


class Numbered(NamedTuple):
    """A variable's path with the numbers in it that Keras added.

    Attributes:
        numbers: one for each automatic name in the path, 0 for a name without a number.
        path: the full path.
        place: the variable's index in its group.
    """

    numbers: tuple[int, ...]
    path: str
    place: int


def by_name(paths: Sequence[str], automatic: Set[str]) -> dict[str, list[Numbered]]:
    """Returns the paths in their order, grouped by their names without automatic numbers."""
    found: dict[str, list[Numbered]] = {}
    for place, path in enumerate(paths):
        name, numbers = without_numbers(path, automatic)
        found.setdefault(name, []).append(Numbered(numbers, path, place))
    return found


def without_numbers(path: str, automatic: Set[str]) -> tuple[str, tuple[int, ...]]:
    """Returns a path without the numbers of automatic names, and these numbers.

    >>> without_numbers("adam_2/my_dense_kernel_momentum/expert_1", {"adam", "dense"})
    ('adam/my_dense_kernel_momentum/expert_1', (2, 0))
    """
    kept: list[str] = []
    numbers: list[int] = []
    for part in path.split("/"):
        words: list[str] = []
        follows = False  # Whether the words so far end with an automatic name.
        for word in part.split("_"):
            if follows and word.isdecimal():
                numbers[-1], follows = int(word), False
                continue
            words.append(word)
            follows = any("_".join(words[start:]) in automatic for start in range(len(words)))
            numbers += [0] * follows
        kept.append("_".join(words))
    return "/".join(kept), tuple(numbers)


def automatic_names() -> Set[str]:
    """Returns the names, without numbers, that Keras gives to objects that get no name."""
    classes = [
        keras.Layer, keras.Variable, keras.optimizers.Optimizer, keras.metrics.Metric,
        keras.random.SeedGenerator,
    ]  # fmt: skip
    for known in classes:  # The list grows during the loop.
        classes += known.__subclasses__()
    return {automatic_name(known.__name__) for known in classes}


def automatic_name(class_name: str) -> str:
    """Returns the name that Keras gives to an object of a class.

    >>> automatic_name("LSTM"), automatic_name("Conv2DTranspose"), automatic_name("ReLU")
    ('lstm', 'conv2d_transpose', 're_lu')
    """
    return re.sub(r"(?<=[a-z])(?=[A-Z])|(?<=.)(?=[A-Z][a-z])", "_", class_name).lower()


def ranks(group: Sequence[Numbered]) -> list[int]:
    """Returns the indices that sort a group by its numbers; equal numbers keep their order."""
    return sorted(range(len(group)), key=lambda place: group[place].numbers)


def without_counterpart(group: Sequence[Numbered], others: Sequence[Numbered]) -> list[str]:
    """Returns the surplus paths of a group over the others; paths missing in the others first."""
    paths = {other.path for other in others}
    by_counterpart = sorted(group, key=lambda found: found.path not in paths)
    return [found.path for found in by_counterpart[len(others) :]]


def dtype_of(variable: Variable) -> str:
    """Returns the name of a variable's dtype."""
    return tf.as_dtype(variable.dtype).name


def shorten(items: Sequence[str]) -> str:
    """Returns the items in one line; of a long list, the first few and the number of the rest."""
    more = len(items) - LONGEST_LIST
    return "; ".join(items[:LONGEST_LIST]) + (f"; and {more} more" if more > 0 else "")

"""A run's directory: what ran, in run.json, and where its checkpoints and curves are."""

from __future__ import annotations

import contextlib
import datetime
import importlib.metadata
import json
import os
import pathlib
import platform
import re
import shutil
import sys
import warnings
from typing import Any

import towers
from towers.ground.durable import make_folder, write_file
from towers.scripts.quiet import import_tensorflow_quietly
from towers.scripts.wrong_input import as_many_as_fit

SHOWN = 110  # Characters of the differences that an error lists.
# What must not change while a run goes on; devices, placement and reports may.
IDENTITY = ("recipe", "fields", "seed", "precision", "batch_norm", "engine", "updates")
BEFORE = {"engine": "towers", "updates": "sync"}  # What older records mean that do not have it.
# The same of the fields, in the recipes that have them.
FIELDS_BEFORE = {
    "max_answer_repeats": 0,
    "columns": [],
    "fix_text": False,
    "simplify": False,
    "standardize": False,
    "weight_decay": -1.0,
    "fixed_shapes": False,
    "unigram_bias": True,  # They began without; but it is over, and the same command goes on.
    "augmentation": "none",
    "filters": [20, 50],
    "depth": 8,
}
# What a process left that was killed while it wrote run.json, with the names of older versions.
LOCK = ".lock"  # Of a process that was killed; it holds nothing any more.
LEFTOVER = re.compile(r"\.run\.json\.(\d+\.tmp|partial)")

# The names of what a run writes into checkpoints/ and summaries/, unfinished files included.
CHECKPOINT = re.compile(r"(step-\d+|best)\.ckpt\.npz(\.\w+)?")
CURVE = re.compile(
    r".*tfevents.*|damaged-\d+-.*|rewriting\.partial|.*\.xplane\.pb|.*\.trace\.json\.gz"
)


class RunDirectory:
    """The files of one run.

    Args:
        path: the directory; it is made when something is written.
    """

    def __init__(self, path: str | os.PathLike):
        self.path = pathlib.Path(path)
        self.checkpoints = self.path / "checkpoints"
        self.summaries = self.path / "summaries"
        self.text = self.path / "text"
        self.config = self.path / "run.toml"
        self.metrics = self.path / "metrics.jsonl"
        self._record = self.path / "run.json"

    @property
    def exists(self) -> bool:
        """Whether a run was recorded here."""
        return self._record.exists() or self._saved_record() is not None

    def locked(self) -> contextlib.AbstractContextManager[None]:
        """Returns the scope in which no other process trains here.

        Raises:
            ValueError: another process does; it is named.
            OSError: the directory cannot be written.
        """
        self._make()
        return towers.checkpoints.locked(self.path)

    @property
    def is_unsaved(self) -> bool:
        """Whether the run saved no checkpoint, so that nothing is lost with it."""
        return not any(self.checkpoints.glob("*.ckpt.npz"))

    def holds(self, record: dict[str, Any]) -> bool:
        """Returns whether the run of this record is recorded here."""
        try:
            check_same(self.read(), record, self.path)
        except ValueError:
            return False
        return True

    def clear(self) -> None:
        """Removes the run, run.json last, so that whoever is killed in between can go on.

        What `towers export` wrote and files of the user's stay.
        """
        shutil.rmtree(self.text, ignore_errors=True)
        remove_files(self.checkpoints, CHECKPOINT)
        remove_files(self.summaries, CURVE)
        for file in (self.config, self.metrics, self._record):
            file.unlink(missing_ok=True)

    def check(self, record: dict[str, Any]) -> None:
        """Raises ValueError unless this can run here: in a free place, or where it ran before.

        A run that saved no checkpoint leaves its place to another one.
        """
        if self.exists:
            if not self.is_unsaved:
                check_same(self.read(), record, self.path)
        elif self.path.exists():
            self._check_free()

    def begin(self, record: dict[str, Any]) -> None:
        """Records what runs, and that a process begins.

        Raises:
            OSError: if the directory cannot be written.
        """
        self._make()
        self._remove_leftovers()
        starts = self.read()["starts"] if self.exists else []
        write_json(self._record, {**record, "starts": [*starts, describe_start(record)]})

    def read(self) -> dict[str, Any]:
        """Returns the contents of run.json.

        Raises:
            ValueError: if the directory holds no run, or run.json is damaged.
        """
        try:
            return self._read_record()
        except ValueError as error:
            record = self._saved_record()
            if record is None:
                raise
            warnings.warn(f"{error} A checkpoint's copy is used.", RuntimeWarning, stacklevel=2)
            return {**BEFORE, "starts": [], **record}

    def _read_record(self) -> dict[str, Any]:
        if not self._record.exists():
            raise ValueError(
                f"{self.path} holds no run: there is no run.json in it. Give the directory that "
                "`towers train` named in its first line."
            )
        try:
            record = json.loads(self._record.read_text(encoding="utf-8"))
            if not isinstance(record, dict):
                raise ValueError("it holds no object")
            record = {**BEFORE, **record}
            if not {"starts", "data", *IDENTITY} <= set(record):
                raise ValueError("entries are missing")
            check_record(record)
        except (ValueError, TypeError, RecursionError) as error:
            raise ValueError(
                f"{self._record} is damaged ({error}). Expected what `towers train` wrote."
            ) from error
        return record

    def _saved_record(self) -> dict[str, Any] | None:
        """Returns the record in the latest checkpoint, or None."""
        if not self.checkpoints.is_dir():
            return None
        import_tensorflow_quietly()
        checkpoint = towers.checkpoints.CheckpointFolder(self.checkpoints).latest()
        return None if checkpoint is None else checkpoint.state.get("run")

    def _make(self) -> None:
        try:
            make_folder(self.path)
        except OSError as error:
            raise OSError(
                f"The run directory {self.path} cannot be made: {error.strerror}. "
                "Choose another with --run-dir."
            ) from error

    def _remove_leftovers(self) -> None:
        for entry in list(self.path.iterdir()):
            if LEFTOVER.fullmatch(entry.name):
                entry.unlink(missing_ok=True)

    def _check_free(self) -> None:
        if not self.path.is_dir():
            raise ValueError(
                f"The run directory {self.path} is a file. Choose another with --run-dir."
            )
        found = sorted(
            entry.name
            for entry in self.path.iterdir()
            if not LEFTOVER.fullmatch(entry.name) and entry.name != LOCK
        )
        if found:
            raise ValueError(
                f"{self.path} is not empty and holds no run (found {', '.join(found[:3])}). "
                "Choose another directory with --run-dir."
            )


def check_record(record: dict[str, Any]) -> None:
    """Raises ValueError unless every entry of a record is of its kind; a stranger may have it."""
    texts = ("recipe", "precision", "batch_norm", "engine", "updates")
    wrong = [name for name in texts if not isinstance(record[name], str)]
    data = [] if record["data"] is None else record["data"]
    if not isinstance(data, list) or not all(isinstance(one, str) for one in data):
        wrong.append("data")
    if not isinstance(record["starts"], list) or not all(map(is_start, record["starts"])):
        wrong.append("starts")
    if not isinstance(record.get("best_metric"), (str, type(None))):
        wrong.append("best_metric")
    if not isinstance(record["fields"], dict):
        wrong.append("fields")
    elif "batch_size" not in record["fields"]:
        raise ValueError("the batch size is missing")
    if type(record["seed"]) is not int or not 0 <= record["seed"] < 2**32:
        wrong.append("seed")
    if wrong:
        found = ", ".join(f"{name} {record[name]!r}" for name in wrong)
        raise ValueError(f"no run has {found}")


def is_start(start: Any) -> bool:
    """Returns whether an entry of a record's starts says on which devices it ran."""
    return isinstance(start, dict) and isinstance(start.get("devices"), list)


def check_same(before: dict[str, Any], now: dict[str, Any], path: pathlib.Path) -> None:
    """Raises ValueError that lists what differs between the run of a directory and this one."""
    differences = []
    for key in IDENTITY:
        if key == "fields":
            differences += different_fields(before[key], now[key])
        elif before[key] != now[key]:
            differences.append(f"{key}: {before[key]} before, {now[key]} now")
    if "data_key" in now and before.get("data_key") != now["data_key"]:
        differences.append("the content of the data, or how it is prepared")
    if differences:
        raise ValueError(
            f"{path} holds another run, which cannot go on with these settings: "
            f"{as_many_as_fit(differences, '; ', SHOWN)}. Give those of before, choose another "
            "--run-dir, or remove that run with --overwrite."
        )


def different_fields(before: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """Returns the differences between two runs' fields; only `epochs` may differ."""
    before = {**{name: old for name, old in FIELDS_BEFORE.items() if name in now}, **before}
    names = [name for name in {**before, **now} if name != "epochs"]
    return [
        f"{name}: {before.get(name, 'absent')} before, {now.get(name, 'absent')} now"
        for name in names
        if before.get(name) != json.loads(json.dumps(now.get(name)))
    ]


def describe_start(record: dict[str, Any]) -> dict[str, Any]:
    """Returns when, on what and with which versions a process trains."""
    return {
        "time": datetime.datetime.now().astimezone().isoformat(timespec="seconds"),
        "command": sys.argv,
        "devices": record["devices"],
        "python": platform.python_version(),
        "versions": package_versions(),
        "machine": platform.platform(),
    }


def package_versions() -> dict[str, str]:
    """Returns the versions of the packages that compute."""
    packages = ("towers", "tensorflow", "keras", "numpy")
    return {name: importlib.metadata.version(name) for name in packages}


def write_json(path: pathlib.Path, content: Any) -> None:
    """Writes JSON, whole or not at all."""
    try:
        write_file(path, (json.dumps(content, indent=2) + "\n").encode("utf-8"))
    except OSError as error:
        raise OSError(f"{path} cannot be written: {error.strerror}.") from error


def remove_files(folder: pathlib.Path, names: re.Pattern[str]) -> None:
    """Removes the files below a folder that have such names, and the folders that are empty then.

    Args:
        folder: the folder; it may be absent.
        names: matches a whole name.
    """
    for here, _, files in os.walk(folder, topdown=False):
        for name in filter(names.fullmatch, files):
            pathlib.Path(here, name).unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # Something else is in it.
            os.rmdir(here)

"""A run's directory: what ran, in run.json, whether it goes on, and where its files are."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import pathlib
import re
import shlex
import shutil
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import towers
from towers.ground.checkpoint_names import BEST, OF_STEP, SUFFIX
from towers.ground.quiet import import_tensorflow_quietly
from towers.scripts.training.fields import in_words_of_today
from towers.scripts.wrong_input import as_many_as_fit

# What must not change while a run goes on; devices, placement and reports may.
IDENTITY = ("recipe", "fields", "seed", "precision", "batch_norm", "updates")
# What runs of earlier releases mean that lack an entry of run.json or, by recipe, a field.
BEFORE: dict[str, Any] = {"chooses": True}
OF_IMAGES = {"validation_share": 0.0, "part": ""}
WITHOUT_VIEWS = {"flip": "random", "test_views": "none"}
WIDTHS = {"widths": [64, 256, 256]}
OF_FAST = {"shift": 2, "cutout": 0, "depth": 2}
OF_STREAMS = {"evaluation_steps": 100}
WITHOUT_AVERAGES = {"ema_momentum": 0.0, "ema_overwrite_frequency": 0}
OWN_FIELDS_BEFORE: dict[str, dict[str, Any]] = {
    **dict.fromkeys(("shapes", "mnist", "fashion_mnist", "cifar10_resnet"), OF_IMAGES),
    "cifar10": {
        **{**OF_IMAGES, **WITHOUT_VIEWS, **WIDTHS},
        **{"network": "tutorial", "label_smoothing": 0.0},
        **OF_FAST,
    },
    "fashion_mnist_fast": OF_FAST,
    "chatbot": {
        **{"marks": False, "split_counts": False},
        "normalise": "auto",
        **dict.fromkeys(("sender", "text", "time", "me", "answers"), ""),
    },
    "images": {
        **{"background": 255, "columns": [], "levels": 0, "nested": "one"},
        **{**WITHOUT_VIEWS, **WIDTHS},
    },
    "language_model": {
        **{"marks": False, "split_counts": False, "normalise": "all"},
        **{"documents": False, "code": False},
        "min_count": 1,
        **{"activation_penalty": 0.0, "temporal_penalty": 0.0},
        **OF_STREAMS,
    },
    **dict.fromkeys(("ptb_small", "ptb_medium", "ptb_large", "stories"), OF_STREAMS),
}
FIELDS_BEFORE = {
    recipe: {**WITHOUT_AVERAGES, **fields} for recipe, fields in OWN_FIELDS_BEFORE.items()
}
SHOWN = 100  # Characters of the differences that an error lists.
RUNS = pathlib.Path("runs")  # Where `towers train` makes directories.
# What a process that was killed may leave where no run has begun.
LEFTOVERS = {".lock", ".run.json.partial"}

# The names of what a run writes into checkpoints/ and summaries/, unfinished files included.
CHECKPOINT = re.compile(rf"({OF_STEP.pattern}|{re.escape(BEST)})(\.\w+)?")
CURVE = re.compile(
    r".*tfevents.*|damaged-\d+-.*|rewriting\.partial|.*\.xplane\.pb|.*\.trace\.json\.gz"
)


class RunDirectory:
    """The files of one run; its directory is made when something is written."""

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

    @property
    def is_unsaved(self) -> bool:
        """Whether the run saved no checkpoint, so that nothing is lost with it."""
        return not any(self.checkpoints.glob(f"*{SUFFIX}"))

    @property
    def typed(self) -> str:
        """The path as a shell takes it, for commands that a message names."""
        return shlex.quote(str(self.path))

    @property
    def free_name(self) -> str:
        """A path beside it that is not there yet, such as runs/shapes-2, as a shell takes it."""
        is_named = self.path.name not in ("", "..")  # "." is not.
        path = self.path if is_named else os.path.abspath(self.path)
        numbers = itertools.count(2)
        free = next(one for n in numbers if not os.path.lexists(one := f"{path}-{n}"))
        return shlex.quote(free)

    @contextlib.contextmanager
    def named_failure(self) -> Iterator[None]:
        """The scope in which an OSError is raised again with why the directory cannot be used."""
        try:
            yield
        except OSError as error:
            reason = "it is a file" if self.path.is_file() else error.strerror
            raise OSError(
                f"The run directory {self.path} cannot be made or written: {reason}. Choose "
                "another with --run-dir."
            ) from error

    def find_run(self, record: dict[str, Any], *, overwrite: bool = False) -> dict[str, Any] | None:
        """Returns what the run here recorded if it goes on, or None where one may begin.

        A run that saved no checkpoint gives way to another.

        Raises:
            ValueError: the directory holds another run, or other files.
        """
        if not self.exists:
            self._check_free()
            return None
        if overwrite:
            return None
        try:
            before = self.read()
            check_same(before, record, self)
        except ValueError:
            if self.is_unsaved:
                return None
            raise
        return before

    def _check_free(self) -> None:
        """Raises ValueError unless this, which holds no run, is absent or empty."""
        found = {entry.name for entry in self.path.iterdir()} if self.path.exists() else set()
        if found - LEFTOVERS:
            raise ValueError(
                f"{self.path} is not empty and holds no run (found "
                f"{', '.join(sorted(found - LEFTOVERS)[:3])}). Choose another directory, such as "
                f"--run-dir {self.free_name}."
            )

    def begin(
        self,
        record: dict[str, Any],
        devices: Sequence[str],
        before: dict[str, Any] | None,
        num_processes: int,
    ) -> None:
        """Records what runs, and that so many processes begin, this one on these devices.

        Without what a run that goes on recorded before, the run that is here is removed.

        Raises:
            OSError: the directory cannot be written.
        """
        if before is None:
            self._clear()
        with self.named_failure():
            towers.checkpoints.record_start(self.path, record, devices, before, num_processes)

    def _clear(self) -> None:
        """Removes the run, run.json last, so that a process that is killed in between can go on.

        What `towers export` wrote and files of the user's stay.
        """
        shutil.rmtree(self.text, ignore_errors=True)
        remove_files(self.checkpoints, CHECKPOINT)
        remove_files(self.summaries, CURVE)
        for file in (self.config, self.metrics, self._record):
            file.unlink(missing_ok=True)

    def read(self) -> dict[str, Any]:
        """Returns the contents of run.json; ValueError if there is no run, or it is damaged."""
        try:
            return self._read_record()
        except ValueError as error:
            record = self._saved_record()
            if record is None:
                raise
            warnings.warn(f"{error} A checkpoint's copy is used.", RuntimeWarning, stacklevel=2)
            return complete({"starts": [], **record})

    def recorded(self, recipe: str) -> dict[str, Any]:
        """Returns `fields` and `data` of the run of this recipe that is here; {} without one."""
        try:
            record = self._read_record()
        except (OSError, ValueError):
            return {}  # No run, or a damaged one, which reading it names.
        own = ("fields", "data") if record["recipe"] == recipe else ()
        return {name: record[name] for name in own if name in record}

    def _read_record(self) -> dict[str, Any]:
        if not self._record.exists():
            near = (RUNS / self.path, self.path.parent)
            meant = [one for one in near if (one / self._record.name).exists()]
            lists = "`towers runs` lists the runs in runs/."
            hint = f"Did you mean {meant[0]}?" if meant else lists
            raise ValueError(f"{self.path} holds no run: there is no run.json in it. {hint}")
        try:
            return complete(json.loads(self._record.read_text(encoding="utf-8")))
        except (ValueError, TypeError, RecursionError) as error:
            raise ValueError(
                f"{self._record} is damaged ({error}). Expected what `towers train` wrote."
            ) from error

    def _saved_record(self) -> dict[str, Any] | None:
        """Returns the record in the latest checkpoint, or None."""
        if not self.checkpoints.is_dir():
            return None
        import_tensorflow_quietly()
        checkpoint = towers.checkpoints.CheckpointFolder(self.checkpoints).latest()
        return None if checkpoint is None else checkpoint.state.get("run")


def check_same(before: dict[str, Any], now: dict[str, Any], directory: RunDirectory) -> None:
    """Raises ValueError that lists what differs between the run of a directory and this one."""
    differences = []
    for key in IDENTITY:
        if key == "fields":
            is_same = before["recipe"] == now["recipe"]
            differences += different_fields(before[key], now[key]) if is_same else []
        elif before[key] != now[key]:
            differences.append(f"{key}: {before[key]} before, {now[key]} now")
    is_other = "data_key" in now and before.get("data_key") != now["data_key"]
    if is_other:
        differences.append("the content of the data, or how it is prepared")
    grown = f", with --init-from {directory.typed} if the data grew" * is_other
    if differences:
        raise ValueError(
            f"{directory.path} holds a run that cannot continue with these settings: "
            f"{as_many_as_fit(differences, '; ', SHOWN)}. Use the earlier settings, choose "
            f"another directory (--run-dir {directory.free_name}{grown}), or replace that run with "
            "--overwrite."
        )


def different_fields(before: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """Returns the differences between two runs' fields; only `epochs` may differ."""
    now = json.loads(json.dumps(now))  # As the record of a run has them.
    return [
        f"{name}: {before.get(name, 'absent')} before, {now.get(name, 'absent')} now"
        for name in {**before, **now}
        if name != "epochs" and before.get(name) != now.get(name)
    ]


def complete(record: Any) -> dict[str, Any]:
    """Returns a record with what earlier releases left unsaid; ValueError for a wrong entry."""
    if not isinstance(record, dict):
        raise ValueError("it holds no JSON object")
    record = {**BEFORE, **record}
    if not {"starts", "data", *IDENTITY} <= set(record):
        raise ValueError("entries are missing")
    check_record(record)
    fields = {**FIELDS_BEFORE.get(record["recipe"], {}), **record["fields"]}
    return {**record, "fields": in_words_of_today(fields)}


def check_record(record: dict[str, Any]) -> None:
    """Raises ValueError unless every entry of a record is of its kind."""
    texts = ("recipe", "precision", "batch_norm", "updates")
    data, starts, seed = record["data"], record["starts"], record["seed"]
    is_right = {
        **{name: isinstance(record[name], str) for name in texts},
        "data": data is None or (isinstance(data, list) and all(isinstance(x, str) for x in data)),
        "chooses": isinstance(record["chooses"], bool),
        "starts": isinstance(starts, list)
        and all(isinstance(x, dict) and isinstance(x.get("devices"), list) for x in starts),
        "best_metric": isinstance(record.get("best_metric"), (str, type(None))),
        "fields": isinstance(record["fields"], dict),
        "about": is_about(record.get("about")),
        "seed": type(seed) is int and 0 <= seed < 2**32,
    }
    wrong = [f"{name} {record[name]!r}" for name, right in is_right.items() if not right]
    if wrong:
        raise ValueError(f"unexpected {', '.join(wrong)}")
    if "batch_size" not in record["fields"]:
        raise ValueError("the batch size is missing")


def is_about(about: Any) -> bool:
    """Returns whether an entry may be what a run says about its data."""
    if not isinstance(about, dict):
        return about is None
    numbers = [about.get(name, 0) for name in ("pairs", "context")]
    lists = [about.get(name, []) for name in ("kinds", "files", "classes")]
    return all(type(one) is int and one >= 0 for one in numbers) and all(
        isinstance(one, list) and all(isinstance(text, str) for text in one) for one in lists
    )


def remove_files(folder: pathlib.Path, names: re.Pattern[str]) -> None:
    """Removes the files below a folder that have such names, and folders that are empty then."""
    for here, _, files in os.walk(folder, topdown=False):
        for name in filter(names.fullmatch, files):
            pathlib.Path(here, name).unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # Something else is in it.
            os.rmdir(here)

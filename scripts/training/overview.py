"""What a run directory tells about its run, read without TensorFlow."""

from __future__ import annotations

import contextlib
import datetime
import os
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import towers
from towers.ground.checkpoint_names import OF_STEP
from towers.scripts.shown import decimals
from towers.scripts.training.fields import in_words_of_today
from towers.scripts.training.run_directory import RunDirectory
from towers.scripts.wrong_input import describe

END, TEST, TRAIN = (
    towers.actions.MetricsFile.END, towers.actions.MetricsFile.TEST,
    towers.actions.MetricsFile.TRAIN,
)  # fmt: skip


class Overview(NamedTuple):
    """A run in brief.

    Attributes:
        path: the run's directory.
        record: what ran, from run.json.
        state: running, finished, stopped, unfinished (it was killed) or unsaved.
        step: of the end of the training, else of the newest checkpoint, else of the last line of
            metrics; 0 if there is none.
        metrics: the lines of metrics.jsonl, if there are any.
        size: of all files, in bytes.
        changed: when the run was last written.
    """

    path: Path
    record: dict[str, Any]
    state: str
    step: int
    metrics: list[dict[str, Any]]
    size: int
    changed: datetime.datetime

    @property
    def num_processes(self) -> int:
        """The number of processes that train, or trained last."""
        starts = self.record["starts"]
        return starts[-1].get("processes", 1) if starts else 1

    @property
    def evaluated(self) -> str:
        """The part of the data that the run's evaluations are of."""
        about = in_words_of_today(self.record.get("about") or {}, "evaluated")
        return str(about.get("evaluated", TEST))

    @property
    def result(self) -> str:
        """The part that was evaluated, the metric that decides and its step, in a few words.

        It is the best evaluation or, where nothing was chosen by them, the last one.
        """
        found, name = self.last(TEST, best=self.record["chooses"]), self.record.get("best_metric")
        if name not in found:
            return ""
        return f"{self.evaluated} {name} {decimals(found[name])} at step {found['step']}"

    def last(self, kind: str, *, best: bool = False) -> dict[str, Any]:
        """Returns the numbers of the last line of a kind, or of the last best one; or none."""
        lines = [one for one in self.metrics if one["kind"] == kind]
        if best:
            lines = [one for one in lines if one.get("best")]
        return {
            name: value
            for name, value in (lines[-1].items() if lines else ())
            if isinstance(value, (int, float)) and not isinstance(value, bool)
        }

    def summary(self) -> dict[str, Any]:
        """Returns the overview as plain values."""
        return {
            "run": str(self.path),
            "recipe": self.record["recipe"],
            "state": self.state,
            "step": self.step,
            "processes": self.num_processes,
            "starts": len(self.record["starts"]),
            "train": self.last(TRAIN),
            "test": self.last(TEST),
            "best": self.last(TEST, best=True) or None,
            "changed": self.changed.isoformat(timespec="seconds"),
            "bytes": self.size,
        }


def find_runs(folder: Path) -> Iterator[Overview]:
    """Yields the runs at and below a folder, by path; warns of those that cannot be read.

    A run without run.json is found by its metrics; its checkpoints have a copy of the record.
    """
    names = ("run.json", "metrics.jsonl")
    for path in sorted({file.parent for name in names for file in folder.rglob(name)}):
        try:
            yield read_overview(path)
        except (ValueError, OSError) as error:
            if (path / "checkpoints").exists():  # Other programs may have a run.json too.
                warnings.warn(
                    f"{describe(error)} The run is left out.", RuntimeWarning, stacklevel=2
                )


def stats_of(paths: Iterable[Path]) -> Iterator[tuple[Path, os.stat_result]]:
    """Yields each file and what the system says of it; a training may remove some meanwhile."""
    for path in paths:
        with contextlib.suppress(FileNotFoundError):
            if path.is_file():
                yield path, path.stat()


def read_overview(path: Path) -> Overview:
    """Returns the overview of a run.

    Raises:
        ValueError: the directory holds no run.
        OSError: it cannot be read.
    """
    directory = RunDirectory(path)
    record = directory.read()
    metrics = towers.actions.MetricsFile(directory.metrics).read()
    stats = [one for _, one in stats_of(path.rglob("*"))]
    ends = [line for line in metrics if line["kind"] == END]
    steps = checkpoint_steps(directory.checkpoints) or [line["step"] for line in metrics] or [0]
    return Overview(
        path,
        record,
        state="running" if towers.checkpoints.lock_holder(path) else state_of(ends, directory),
        step=ends[-1]["step"] if ends else steps[-1],
        metrics=metrics,
        size=sum(one.st_size for one in stats),
        changed=datetime.datetime.fromtimestamp(max(one.st_mtime for one in stats)).astimezone(),
    )


def state_of(ends: list[dict[str, Any]], directory: RunDirectory) -> str:
    """Returns a word for how far a run is."""
    if directory.is_unsaved:
        return "unsaved"  # Also if it came to its end: its checkpoints were removed.
    if ends:
        return "finished" if ends[-1].get("finished") else "stopped"
    return "unfinished"


def checkpoint_steps(folder: Path) -> list[int]:
    """Returns the steps of the checkpoints, in the order in which they were saved."""
    found = [(one.st_mtime, path.name) for path, one in stats_of(folder.glob("step-*"))]
    matches = (OF_STEP.fullmatch(name) for _, name in sorted(found))
    return [int(match[1]) for match in matches if match]

"""A run's metrics.jsonl: one line for each report, evaluation and end, each step once."""

from __future__ import annotations

import datetime
import json
import math
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import towers
from towers.ground.durable import make_folder, sync_folder, write_file

TRAIN, TEST, END = "train", "test", "end"  # The kinds of lines.


class MetricsFile:
    """The file of a run's metrics, to which one process appends.

    Args:
        path: the file; the first line makes it.
    """

    def __init__(self, path: Path):
        self.path = path
        self._is_synced = True

    def write(self, kind: str, step: int, values: Mapping[str, Any]) -> None:
        """Appends a line; what is no finite number becomes null.

        Raises:
            OSError: the file cannot be written.
        """
        now = datetime.datetime.now().astimezone().isoformat(timespec="seconds")
        line = {"kind": kind, "step": step, "time": now, **map_values(values)}
        try:
            make_folder(self.path.parent)
            with open(self.path, "a", encoding="utf-8") as file:
                file.write(json.dumps(line, allow_nan=False) + "\n")
        except OSError as error:
            raise OSError(f"{self.path} cannot be written: {error.strerror}.") from error
        self._is_synced = False

    def report(self) -> Callable[[towers.StepReport, towers.actions.Rates], None]:
        """Returns an action for `with_rates` that appends a line for each report."""

        def write(report: towers.StepReport, rates: towers.actions.Rates) -> None:
            results = report.results
            values = {
                "epoch": report.epoch + 1,
                "loss": float(results.loss),
                **scalars(results.metrics),
                "gradient_norm": float(results.gradient_norm),
                "learning_rate": float(results.learning_rate),
                "steps_per_second": rates.steps_per_second,
                "examples_per_second": rates.examples_per_second,
            }
            self.write(TRAIN, report.step, values)

        return write

    def sync(self) -> None:
        """Waits until the lines are on the disk."""
        if not self._is_synced:
            with open(self.path, "rb") as file:
                os.fsync(file.fileno())
            sync_folder(self.path.parent)
            self._is_synced = True

    def cut(self, step: int, evaluated_step: int) -> None:
        """Removes what a run that continues at a step is going to write again, and its old ends.

        Args:
            step: the run's position.
            evaluated_step: the step of the last evaluation that counts.
        """
        last = {TRAIN: step, TEST: evaluated_step, END: -1}
        lines = read_metrics(self.path)
        kept = [line for line in lines if line["step"] <= last.get(line["kind"], step)]
        text = "".join(json.dumps(line) + "\n" for line in kept).encode("utf-8")
        if self.path.exists() and self.path.read_bytes() != text:
            write_file(self.path, text)


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """Returns the lines of a metrics file; one that a killed process left half written is none."""
    try:
        texts = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except FileNotFoundError:
        return []
    lines = []
    for text in texts:
        try:
            line = json.loads(text)
        except ValueError:
            continue
        if isinstance(line, dict) and isinstance(line.get("step"), int) and "kind" in line:
            lines.append(line)
    return lines


def scalars(values: Mapping[str, Any]) -> dict[str, float]:
    """Returns the metrics that are one number each."""
    shapes = {name: getattr(value, "shape", ()) for name, value in values.items()}
    return {name: float(value) for name, value in values.items() if len(shapes[name]) == 0}


def map_values(values: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the values as JSON takes them: floats of seven digits, null where none is finite."""
    return {
        name: plain(value) if isinstance(value, float) else value for name, value in values.items()
    }


def plain(value: float) -> float | None:
    """Returns a number with as many digits as a float32 has, or None if it is not finite."""
    return float(f"{value:.7g}") if math.isfinite(value) else None

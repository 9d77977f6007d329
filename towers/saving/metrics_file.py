"""A run's metrics.jsonl: one line for each report, evaluation and end, each step once."""

from __future__ import annotations

import datetime
import json
import os
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from towers.ground.durable import make_folder, sync_folder, write_file
from towers.ground.json_text import json_text
from towers.ground.progress import count_of
from towers.saving.lock import check_in_place


class MetricsFile:
    """The file of a run's metrics, to which one process appends; the first line makes it.

    Args:
        path: of the file.
    """

    TRAIN, TEST, END = "train", "test", "end"  # The kinds of lines.

    def __init__(self, path: Path):
        self.path = path
        self._is_synced = True

    def write(self, kind: str, step: int, values: Mapping[str, Any]) -> None:
        """Appends a line, null for what is no finite number; OSError if it cannot be written."""
        now = datetime.datetime.now().astimezone().isoformat(timespec="seconds")
        short = {name: shortened(value) for name, value in values.items()}
        line = {"kind": kind, "step": step, "time": now, **short}
        check_in_place(self.path.parent)
        try:
            make_folder(self.path.parent)
            with open(self.path, "a", encoding="utf-8") as file:
                file.write(json_text(line) + "\n")
        except OSError as error:
            raise OSError(f"{self.path} cannot be written: {error.strerror}.") from error
        self._is_synced = False

    def sync(self) -> None:
        """Waits until the lines are on the disk."""
        if not self._is_synced:
            check_in_place(self.path.parent)
            with open(self.path, "rb") as file:
                os.fsync(file.fileno())
            sync_folder(self.path.parent)
            self._is_synced = True

    def cut(self, step: int, evaluated_step: int) -> None:
        """Removes what a run that continues at a step is going to write again, and its old ends."""
        last = {self.TRAIN: step, self.TEST: evaluated_step, self.END: -1}
        lines = self.read()
        kept = [line for line in lines if line["step"] <= last.get(line["kind"], step)]
        text = "".join(json_text(line) + "\n" for line in kept).encode("utf-8")
        if self.path.exists() and self.path.read_bytes() != text:
            write_file(self.path, text)

    def has_finished(self) -> bool:
        """Returns whether the training came to its end, as the last of its ends says."""
        ends = [line for line in self.read() if line["kind"] == self.END]
        return bool(ends and ends[-1].get("finished"))

    def read(self) -> list[dict[str, Any]]:
        """Returns the lines, without a last one that a killed process left half written.

        Other lines that are none of a run are left out, too, with a warning.
        """
        try:
            texts = self.path.read_bytes().split(b"\n")
        except FileNotFoundError:
            return []
        lines = list(map(line_of, texts))
        damaged = [number for number, line in enumerate(lines[:-1], 1) if line is None]
        if damaged:
            warnings.warn(
                f"{self.path} is damaged: {count_of(len(damaged), 'line')}, the first of them "
                f"line {damaged[0]}, cannot be read and will be left out.",
                RuntimeWarning,
                stacklevel=2,
            )
        return [line for line in lines if line is not None]


def line_of(text: bytes) -> dict[str, Any] | None:
    """Returns a line of metrics, or None if the text is none."""
    try:
        line = json.loads(text)
    except (ValueError, RecursionError):
        return None
    is_right = isinstance(line, dict) and isinstance(line.get("step"), int)
    return line if is_right and isinstance(line.get("kind"), str) else None


def shortened(value: Any) -> Any:
    """Returns a value; of a float the digits of a float32."""
    return float(f"{value:.7g}") if isinstance(value, float) else value

"""The curves that a training wrote for TensorBoard, read back."""

from __future__ import annotations

import os
from pathlib import Path

from tensorboard.util.tensor_util import make_ndarray

from towers.saving.summaries import event_files, read_events


def read_scalars(folder: str | os.PathLike[str], run: str) -> dict[str, list[tuple[int, float]]]:
    """Returns the curves of a run: by tag, the points (step, value) in the order written."""
    curves: dict[str, list[tuple[int, float]]] = {}
    for path in event_files(Path(folder) / run):
        for event, _ in read_events(path):
            for value in event.summary.value:
                if value.metadata.plugin_data.plugin_name == "scalars":
                    point = (event.step, float(make_ndarray(value.tensor)))
                    curves.setdefault(value.tag, []).append(point)
    return curves

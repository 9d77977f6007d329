"""Rates over several steps: steps and examples per second, and the fraction of time waited."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import tensorflow as tf

from towers.loop.updates import StepReport


class Window:
    """A window of steps: collects reports until the rates over them are read."""

    def __init__(self) -> None:
        self._clear()

    def add(self, report: StepReport) -> None:
        """Adds one step; `read` waits for its tensors, `add` does not."""
        self._steps += 1
        self._seconds += report.seconds
        self._waits.append(report.waits)
        self._weights.append(report.results.towers.weight)
        self._totals.append(report.results.weight)
        if report.tower is not None:
            self._staleness.setdefault(report.tower, []).append(report.staleness)

    def read(self) -> Rates:
        """Returns the rates since the last call and starts a new window."""
        rates = Rates(
            steps=self._steps,
            seconds=self._seconds,
            waits=np.sum(self._waits, axis=0),
            weights=np.sum([np.asarray(weight) for weight in self._weights], axis=0),
            total=float(np.sum([np.asarray(weight) for weight in self._totals])),
            staleness={tower: float(np.mean(values)) for tower, values in self._staleness.items()},
        )
        self._clear()
        return rates

    def _clear(self) -> None:
        self._steps = 0
        self._seconds = 0.0
        self._waits: list[Sequence[float]] = []
        self._weights: list[tf.Tensor] = []
        self._totals: list[tf.Tensor] = []
        self._staleness: dict[int, list[int]] = {}


class Rates:
    """The rates over several steps.

    Args:
        steps: the number of steps.
        seconds: their time in seconds, input included, actions excluded.
        waits: the time in seconds for which each tower waited for shards, float64 [num_towers].
        weights: the number of examples (or tokens) of each tower, [num_towers].
        total: the number of examples (or tokens) of all processes; None: of this process.
        staleness: by tower, the mean staleness of its asynchronous updates.

    Attributes:
        steps_per_second: steps per second.
        examples_per_second: examples (or tokens) per second, over all processes.
        tower_examples_per_second: the same for each tower, float64 [num_towers].
        tower_input_wait: for each tower, the fraction of time spent waiting for input, at most 1,
            float64 [num_towers].
        input_wait: the largest of these.
        tower_staleness: by tower, the mean staleness; empty for synchronous updates.
    """

    def __init__(
        self,
        steps: int,
        seconds: float,
        waits: np.ndarray,
        weights: np.ndarray,
        total: float | None = None,
        staleness: Mapping[int, float] | None = None,
    ):
        seconds = max(seconds, 1e-9)
        self.steps_per_second = steps / seconds
        self.tower_examples_per_second = np.asarray(weights, float) / seconds
        self.examples_per_second = (np.sum(weights) if total is None else total) / seconds
        self.tower_input_wait = np.minimum(np.asarray(waits, float) / seconds, 1.0)
        self.input_wait = float(self.tower_input_wait.max())
        self.tower_staleness = dict(staleness or {})

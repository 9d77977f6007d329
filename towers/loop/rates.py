"""Rates over a stretch of steps: steps, examples and waits per second."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import tensorflow as tf

from towers.loop.updates import StepReport


class Window:
    """Rates over the steps since it was last read: a report's stretch of the training."""

    def __init__(self) -> None:
        self._clear()

    def add(self, report: StepReport) -> None:
        """Counts one step; its tensors are not waited for until the rates are asked for."""
        self._steps += 1
        self._seconds += report.seconds
        self._waits.append(report.waits)
        self._weights.append(report.results.towers.weight)
        self._totals.append(report.results.weight)
        if report.tower is not None:
            self._staleness.setdefault(report.tower, []).append(report.staleness)

    def read(self) -> Rates:
        """Returns the rates since the last call, and starts anew."""
        rates = Rates(
            steps=self._steps,
            seconds=self._seconds,
            waits=np.sum(self._waits, axis=0),
            weights=np.sum([np.asarray(weight) for weight in self._weights], axis=0),
            total=float(np.sum([np.asarray(weight) for weight in self._totals])),
            staleness={tower: float(np.mean(own)) for tower, own in self._staleness.items()},
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
    """How fast a stretch of steps went.

    Args:
        steps: how many steps.
        seconds: how long they took, input included, actions excluded.
        waits: seconds that each tower's shards were waited for, float64 [num_towers].
        weights: how many examples (or tokens) each tower had, [num_towers].
        total: how many the towers of all processes had; by default those of this one.
        staleness: of asynchronous towers that made an update, the mean of each.
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

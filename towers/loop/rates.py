"""Means over many batches, and rates over a stretch of steps."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from towers.loop.inputs import open_feed, split
from towers.step.evaluation import EvaluationStep

if TYPE_CHECKING:
    from towers.loop.trainer import StepReport


def evaluate(
    evaluation_step: Callable, dataset: tf.data.Dataset, devices: Sequence[str]
) -> dict[str, float]:
    """Returns the means over a whole data set: `loss`, each metric, and `examples`.

    Every example (or token) counts exactly once, whatever the sizes of the batches; sums are
    kept in float64. A metric whose own weight is zero is 0, as in training.

    Args:
        evaluation_step: what `build_evaluation_step` returned; a carried state begins anew.
        dataset: global batches.
        devices: the towers' devices.
    """
    sums: dict[str, np.ndarray] = {}
    if isinstance(evaluation_step, EvaluationStep):
        evaluation_step.carried.reset()
    with open_feed(split(dataset, len(devices)), devices) as feed:
        for shards in feed:
            add_batch(sums, evaluation_step(shards))
    if not sums or not sums["loss"][1] > 0:
        raise ValueError("There is nothing to evaluate: the data set has no examples.")
    means = {key: float(total / weight) if weight else 0.0 for key, (total, weight) in sums.items()}
    return {**means, "examples": float(sums["loss"][1])}


def add_batch(sums: dict[str, np.ndarray], results: Any) -> None:
    """Adds one batch's (sum, weight) pairs, float64 [2] each, to the running ones."""
    pairs = {"loss": (results.loss, results.weight), **results.metrics}
    for name, (total, weight) in pairs.items():
        pair = np.array([float(total), float(weight)])
        sums[name] = sums.get(name, np.zeros(2)) + pair


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

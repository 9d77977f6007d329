"""What happened since the last report: the means of the updates' results, and their rates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from towers.loop.updates import StepReport
from towers.step.results import StepResults, TowerResults

STACKED = 256  # The numbers of so many updates become one tensor each.


class Window:
    """The updates since the last report.

    Adding one does not wait for its results. Sums are in float64 and in the order of the updates:
    they are the same to the last bit whether or not a checkpoint, which holds them, came between.
    """

    def __init__(self) -> None:
        self._steps, self._seconds = 0, 0.0
        self._waits: list[float] = []
        self._staleness: dict[int, tuple[int, int]] = {}  # By tower, the sum and the count.
        # By name, [2, 1 + num_towers]: the sums of value * weight and of weight, of all and each.
        self._sums: dict[str, np.ndarray] = {}
        self._metrics: list[str] = []  # Those that are one number.
        self._last: StepResults | None = None
        # Not summed yet: an update's numbers and its tower, and those of many updates.
        self._recent: list[tuple[list[Any], int | None]] = []
        self._stacked: list[tuple[list[Any], list[int | None]]] = []

    def add(self, report: StepReport) -> None:
        """Adds one update."""
        results = report.results
        if self._last is None:
            self._metrics = [name for name, one in results.metrics.items() if not np.ndim(one)]
        self._last = results
        self._recent.append((numbers_of(results, self._metrics), report.tower))
        if len(self._recent) == STACKED:
            self._stack()
        self._steps += 1
        self._seconds += report.seconds
        if len(self._waits) != len(report.waits):
            self._waits = [0.0] * len(report.waits)
            self._staleness.clear()
        for tower, wait in enumerate(report.waits):
            self._waits[tower] += wait
        if report.tower is not None:
            total, count = self._staleness.get(report.tower, (0, 0))
            self._staleness[report.tower] = (total + report.staleness, count + 1)

    def read(self) -> tuple[StepResults, Rates]:
        """Returns the means and the rates of the updates, as `Reporting` says; begins anew.

        Raises:
            ValueError: no update was added.
        """
        if self._last is None:
            raise ValueError("There is nothing to report: no update was added since the last read.")
        self._sum()
        last, weights = self._last, self._sums["loss"][1]
        results = StepResults(
            **self._means(0),
            learning_rate=last.learning_rate,
            finite=last.finite,
            loss_scale=last.loss_scale,
            towers=TowerResults(**self._means(slice(1, None))),
        )
        seconds = max(self._seconds, 1e-9)
        rates = Rates(
            self._steps / seconds,
            float(weights[0] / seconds),
            weights[1:] / seconds,
            np.minimum(np.asarray(self._waits) / seconds, 1.0),
            {tower: total / count for tower, (total, count) in self._staleness.items()},
        )
        self._clear()
        return results, rates

    def state(self) -> dict[str, Any]:
        """Returns what a checkpoint holds of the window, of JSON types; waits for the devices."""
        self._sum()
        return {
            "steps": self._steps,
            "seconds": self._seconds,
            "waits": list(self._waits),
            "staleness": {str(tower): list(pair) for tower, pair in self._staleness.items()},
            "sums": {name: pair.tolist() for name, pair in self._sums.items()},
        }

    def restore(self, state: Mapping[str, Any], *, same_towers: bool = True) -> None:
        """Goes on where `state` was saved; without anything in it, the window is new.

        Args:
            state: what `state` returned.
            same_towers: whether its towers are those of this process. Otherwise, or if there is
                another number of them now, only what was summed over all towers goes on.
        """
        self._clear()
        if not state:
            return
        self._steps, self._seconds = state["steps"], state["seconds"]
        self._sums = {name: np.asarray(pair) for name, pair in state["sums"].items()}
        if same_towers:
            self._waits = list(state["waits"])
            self._staleness = {int(name): tuple(pair) for name, pair in state["staleness"].items()}
        else:
            self._sums = {name: pair[:, :1] for name, pair in self._sums.items()}

    def _clear(self) -> None:
        self._steps, self._seconds, self._last = 0, 0.0, None
        for collected in (
            self._waits, self._staleness, self._sums, self._recent, self._stacked,
        ):  # fmt: skip
            collected.clear()

    def _stack(self) -> None:
        """Makes few tensors of many, on their devices, without a wait."""
        if self._recent:
            numbers, towers = zip(*self._recent, strict=True)
            self._stacked.append((list(map(stack, zip(*numbers, strict=True))), list(towers)))
            self._recent.clear()

    def _sum(self) -> None:
        """Adds the updates that are not in the sums yet; waits for their devices."""
        self._stack()
        names = ["loss", "gradient_norm", *(f"metrics/{name}" for name in self._metrics)]
        for stacked, towers in self._stacked:
            values, weights = of_all_and_each(stacked[0::2]), of_all_and_each(stacked[1::2])
            columns = np.arange(values.shape[2]) - 1  # All of them, then each.
            took_part = np.array([(columns == tower) | (columns < 0) for tower in towers])
            took_part[[tower is None for tower in towers]] = True
            self._add("updates", np.stack([took_part, took_part]))
            used = np.where(took_part, weights, 0)
            values[names.index("gradient_norm")] **= 2
            with np.errstate(invalid="ignore", over="ignore"):
                totals = np.where(used != 0, values * used, 0)
            for name, total, weight in zip(names, totals, used, strict=True):
                self._add(name, np.stack([total, weight]))
        self._stacked.clear()

    def _add(self, name: str, added: np.ndarray) -> None:
        """Adds totals and weights, [2, updates, 1 + num_towers], one update after the other."""
        before = self._sums.get(name, np.zeros([2, 1]))
        if added.shape[2] != before.shape[1]:  # The towers are others than before.
            before = np.pad(before[:, :1], [(0, 0), (0, added.shape[2] - 1)])
        everything = np.concatenate([before[:, None], added], axis=1)
        self._sums[name] = np.add.accumulate(everything, axis=1)[:, -1]

    def _means(self, part: Any) -> dict[str, Any]:
        """Returns the means over all towers (part 0) or of each (the rest), and their weights."""
        updates = self._sums["updates"][1]

        def mean(name: str, of_nothing: float = 0.0) -> Any:  # 0 without a weight, as in a step.
            total, weight = self._sums[name]
            means = np.divide(total, weight, out=np.full_like(total, of_nothing), where=weight != 0)
            return np.where(updates == 0, np.nan, means)[part]

        weights = {} if self._last is None else self._last.metric_weights
        return {
            "loss": mean("loss"),
            "weight": self._sums["loss"][1][part],
            "metrics": {name: mean(f"metrics/{name}") for name in self._metrics},
            "metric_weights": {
                name: None if weights[name] is None else self._sums[f"metrics/{name}"][1][part]
                for name in self._metrics
            },
            "gradient_norm": np.sqrt(mean("gradient_norm", np.nan)),
        }


def numbers_of(results: StepResults, metrics: Sequence[str]) -> list[Any]:
    """Returns the numbers to sum: value and weight by turns, over all towers, then of each."""
    numbers: list[Any] = []
    for part in (results, results.towers):
        numbers += (part.loss, part.weight, part.gradient_norm, results.finite)
        for name in metrics:
            numbers += (part.metrics[name], part.metric_weights[name])
    return numbers


def stack(values: Sequence[Any]) -> Any:
    """Returns values of one shape as one, on their device; a missing weight is 1."""
    first = values[0]
    if not isinstance(first, tf.Tensor):
        return np.asarray([1 if value is None else value for value in values])
    with tf.device(first.device):  # A GPU would take them to itself.
        return tf.raw_ops.Pack(values=values, axis=0)


def of_all_and_each(columns: Sequence[Any]) -> np.ndarray:
    """Returns numbers of all towers and of each, float64 [numbers, updates, 1 + num_towers]; waits.

    Args:
        columns: [updates] each of all towers; then, in the same order, of each one [updates,
            num_towers], or [updates] for what they share.
    """
    arrays = [np.asarray(one, np.float64) for one in columns]
    totals, towers = arrays[: len(arrays) // 2], arrays[len(arrays) // 2 :]
    num_towers = max(one.shape[1] for one in towers if one.ndim == 2)
    numbers = np.empty([len(totals), len(totals[0]), 1 + num_towers])
    for index, (total, each) in enumerate(zip(totals, towers, strict=True)):
        numbers[index, :, 0] = total
        numbers[index, :, 1:] = each if each.ndim == 2 else each[:, None]
    return numbers


class Rates(NamedTuple):
    """The rates over several steps; their time includes input and leaves out actions.

    Attributes:
        steps_per_second: steps per second.
        examples_per_second: examples (or tokens) per second, over all processes.
        tower_examples_per_second: the same for each tower, float64 [num_towers].
        tower_input_wait: for each tower, the fraction of time spent waiting for input, at most 1,
            float64 [num_towers].
        tower_staleness: by tower, the mean staleness; empty for synchronous updates.
    """

    steps_per_second: float
    examples_per_second: float
    tower_examples_per_second: np.ndarray
    tower_input_wait: np.ndarray
    tower_staleness: Mapping[int, float]

    @property
    def input_wait(self) -> float:
        """The largest fraction of time that a tower spent waiting for input."""
        return float(self.tower_input_wait.max())

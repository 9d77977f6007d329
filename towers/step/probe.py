"""The probe: asks a tower function, with a few rows, whether it returns sums.

Rows taken twice must have twice the loss and the weight, and two halves must add up to the whole.
Otherwise what is trained depends on how a batch is cut.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from tensorflow.types.experimental import ConcreteFunction

from towers.batches.shards import Batch, Shard, any_number_of_rows
from towers.ground.concrete_function import concrete_function
from towers.step.micro_batches import part_of
from towers.step.sums import Denominators, way_to_merge
from towers.step.tower import Tower, forward
from towers.step.tower_function import TowerProgram
from towers.step.tracing import rewrite_on_cpus

MAX_ROWS = 16
TINY = 1e-30  # Below this, numbers are not told apart.
TOLERANCE = 0.05  # Of the loss. A mean differs by half of it.
MOST_ASKED = 10  # Batches, while a metric is 0, which may be a sum or a mean.
FEW_DRAWS, MANY_DRAWS = 3, 10  # If the tower function draws random numbers.
# In standard errors: differences that are common for equal means, and those that never occur
# (Student's t with 18 degrees of freedom: 4e-8).
COMMON, IMPOSSIBLE = 3, 9
REMEDY = "To go on anyway, build the step with StepOptions(probe=False), or set step.probe = None."
Measure = Callable[[Batch, tf.Tensor], tuple[list[tf.Tensor], ...]]


class Sample(NamedTuple):
    """What some rows have, float64 [losses, draws], [weights, draws] and twice [metrics, draws]."""

    losses: np.ndarray
    weights: np.ndarray
    metrics: np.ndarray
    metric_weights: np.ndarray

    def __add__(self, other: Any) -> Sample:
        return Sample(*map(np.add, self, other))


class Comparison(NamedTuple):
    """A sum over some rows: what it should be, and what was received."""

    what: str
    expected: Sample
    received: Sample

    def is_near(self, bound: float) -> bool:
        """Returns whether all numbers may be equal."""
        pairs = zip(self.expected, self.received, strict=True)
        return all(are_near(*pair, bound) for pair in pairs)


class Probe:
    """Asks a tower function whether it returns sums: once, or until each metric was no 0.

    Args:
        program: the program of the towers; its options say whether it is asked at all.
        tower: the first tower, which is asked.
        spec: that of its shards.
        num_parts: the number of parts into which a batch is cut for one update.

    If a batch is one part, a loss over the whole batch is right, and only a mean is refused. Of
    metrics only means are refused, always: others may be meant to depend on how a batch is cut.
    """

    def __init__(self, program: TowerProgram, tower: Tower, spec: Shard, num_parts: int):
        self._program = program
        self._tower = tower
        self._spec = spec
        self._num_parts = num_parts
        self._left = MOST_ASKED if program.options.probe else 0
        self._measured: ConcreteFunction | None = None
        self._lock = threading.Lock()
        self._has_averages = False
        self._metrics: list[str] = []  # Those that are divided, in the order of their sums.

    @property
    def is_pending(self) -> bool:
        """Whether it is to be asked yet."""
        return self._left > 0

    def ask(self, shards: Sequence[Shard]) -> None:
        """Asks with the first rows of the first shard, unless all is known.

        Raises:
            ValueError: the loss, the weight or a metric is not a sum over the examples.
        """
        if not self.is_pending:
            return
        with self._lock:
            left, self._left = self._left, 0
            num_rows = min(int(shards[0].size), MAX_ROWS)
            if left and num_rows:
                # A model that wants another number of rows has no answer.
                with contextlib.suppress(tf.errors.InvalidArgumentError):
                    pair = self._program.carried.attach(0, shards[0]).batch
                    self._left = left - 1 if self._ask(pair, num_rows) else 0
            if not self.is_pending:
                self._measured = None  # A graph as large as that of a tower.

    def _ask(self, pair: Batch, num_rows: int) -> bool:
        """Returns whether a metric is 0, so that it cannot be told what it is."""
        measure = self._measured = self._measured or self._trace()
        check = check_no_mean if self._num_parts == 1 else check_sums
        rows = rows_of(pair, 0, num_rows)
        is_random = any(np.ptp(one, axis=1).any() for one in sample(measure, rows, 2))
        comparisons = []
        for num_draws in (FEW_DRAWS, MANY_DRAWS) if is_random else (1,):
            comparisons = list(self._compare(measure, pair, num_rows, num_draws))
            if all(one.is_near(COMMON) for one in comparisons):
                return not all(one.any() for one in comparisons[0].expected.metrics)
        is_noise = self._has_averages and not is_random and amplifies_rounding(measure, rows)
        for comparison in comparisons:
            (check_no_mean if is_noise else check)(comparison)
        for comparison in comparisons if not is_noise else ():
            check_metrics(comparison, self._metrics)
        return False

    def _trace(self) -> ConcreteFunction:
        """Returns `_measure` for any number of rows."""
        pair = self._spec.batch, self._program.carried.shard_specs
        specs = tf.nest.map_structure(any_number_of_rows, pair)
        measure = concrete_function(self._measure, specs, tf.TensorSpec([], tf.int64))
        rewrite_on_cpus(measure, disable_meta_optimizer=True)  # It runs a few times only.
        return measure

    def _compare(
        self, measure: Measure, pair: Batch, num_rows: int, num_draws: int
    ) -> Iterator[Comparison]:
        half = max(1, num_rows // 2)
        once = rows_of(pair, 0, half)
        one = sample(measure, once, num_draws)
        yield Comparison("rows taken twice", one + one, sample(measure, twice_of(once), num_draws))
        # BatchNorm in training mode is right to depend on its rows.
        if num_rows > 1 and self._num_parts > 1 and not self._has_averages:
            other = sample(measure, rows_of(pair, half, half), num_draws)
            both = sample(measure, rows_of(pair, 0, 2 * half), num_draws)
            yield Comparison("two halves of some rows", one + other, both)

    def _measure(self, pair: Batch, draw: tf.Tensor) -> tuple[list[tf.Tensor], ...]:
        """Returns the sums of some rows; the draw's number stands for that of a step."""
        program, part = self._program, part_of(self._tower.number, 0, 0, draw)
        with self._tower.scope():
            sums, scope = forward(program, self._tower.read(), Shard(pair, tf.constant(1)), part)
        averages = [one for one in program.shared.states if way_to_merge(one) == "mean"]
        self._has_averages = any(scope.updated(one) is not None for one in averages)
        weights = sums.weight.weights if isinstance(sums.weight, Denominators) else (sums.weight,)
        counted = [weight for weight in weights if weight is not None]
        divided = {key: pair for key, pair in sums.metrics.items() if pair[1] is not None}
        self._metrics = list(divided)
        pairs = divided.values()
        return tf.nest.flatten(sums.loss), counted, [one for one, _ in pairs], [n for _, n in pairs]


def sample(measure: Measure, rows: Batch, num_draws: int) -> Sample:
    """Returns the sums of some rows, measured once for each draw."""
    draws = [measure(rows, tf.constant(draw, tf.int64)) for draw in range(num_draws)]
    parts = zip(*draws, strict=True)
    return Sample(*(np.array(one, np.float64).reshape(num_draws, -1).T for one in parts))


def amplifies_rounding(measure: Measure, rows: Batch) -> bool:
    """Returns whether rows that come twice have another loss if they come in another order.

    This happens where BatchNorm divides by deviations that are rounding errors: in a deep network
    with few rows, or for features that are nearly constant.
    """
    orders = [twice_of(rows), tf.nest.map_structure(lambda one: tf.repeat(one, 2, axis=0), rows)]
    losses, others = (sample(measure, order, 1).losses for order in orders)
    return not are_near(losses, others, COMMON)


def are_near(expected: np.ndarray, received: np.ndarray, bound: float) -> bool:
    """Returns whether each of several series may have the same mean; arguments as in `is_near`."""
    return all(is_near(*pair, bound) for pair in zip(expected, received, strict=True))


def is_near(expected: np.ndarray, received: np.ndarray, bound: float) -> bool:
    """Returns whether two series of draws may have the same mean; True if it cannot be told.

    Args:
        expected, received: the series.
        bound: the number of standard errors by which the means may differ.
    """
    difference = abs(expected.mean() - received.mean())
    largest = max(np.max(abs(expected)), np.max(abs(received)))
    variances = [series.var(ddof=1) if series.size > 1 else 0.0 for series in (expected, received)]
    standard_error = np.sqrt(sum(variances) / expected.size)
    return not difference > TOLERANCE * largest + bound * standard_error + TINY


def check_sums(comparison: Comparison) -> None:
    """Raises ValueError unless weights and losses are those that sums over the rows would have."""
    what, expected, received = comparison
    for pair in zip(expected.weights, received.weights, strict=True):
        if not is_near(*pair, IMPOSSIBLE):
            raise ValueError(
                "The weight is not a sum over the examples, so losses would be divided by the "
                f"wrong number: for {what}, {describe(*pair)}. Return how many examples (or "
                f"tokens) the loss sums over, such as tf.size(labels), not a constant. {REMEDY}"
            )
    for pair in zip(expected.losses, received.losses, strict=True):
        if not is_near(*pair, IMPOSSIBLE) and (expected.weights.any() or not expected.weights.size):
            raise ValueError(
                "The loss is not a sum over the examples, so it depends on how a batch is cut: for "
                f"{what}, {describe(*pair)}. Return tf.reduce_sum of one loss per "
                "example (or token), not a mean; regularisers enter as weight * "
                "sum(model.losses). A loss that couples the examples of a batch, such as in-batch "
                f"negatives, needs the whole batch at once: one tower, accumulate=1. {REMEDY}"
            )


def check_no_mean(comparison: Comparison) -> None:
    """Raises ValueError for a mean loss with the number of examples as its weight."""
    _, expected, received = comparison
    if not expected.weights.any() or not are_near(expected.weights, received.weights, COMMON):
        return
    for one, other in zip(expected.losses, received.losses, strict=True):
        if is_mean(one, other):
            raise ValueError(
                "The loss is a mean, which would be divided by its weight again: for rows taken "
                f"twice, {describe(one, other)}. Return the loss summed over the examples (or "
                f"tokens), tf.reduce_sum. {REMEDY}"
            )


def check_metrics(comparison: Comparison, names: Sequence[str]) -> None:
    """Raises ValueError for a metric that is a mean, where its weight is a number of examples."""
    what, expected, received = comparison
    weights = zip(expected.metric_weights, received.metric_weights, strict=True)
    sums = zip(expected.metrics, received.metrics, strict=True)
    for name, weight, pair in zip(names, weights, sums, strict=True):
        if weight[0].any() and is_near(*weight, COMMON) and is_mean(*pair):
            raise ValueError(
                f"The metric {name!r} is a mean, which would be divided by its weight again: for "
                f"{what}, {describe(*pair)}. Return its sum over the examples (or tokens), "
                f"tf.reduce_sum, or a pair (value, 1) for what belongs to no example. {REMEDY}"
            )


def is_mean(expected: np.ndarray, received: np.ndarray) -> bool:
    """Returns whether a number is half of what a sum would be."""
    return is_near(expected / 2, received, COMMON) and not is_near(expected, received, IMPOSSIBLE)


def describe(expected: np.ndarray, received: np.ndarray) -> str:
    """Returns the means of two series in words."""
    return f"expected {expected.mean():g}, received {received.mean():g}"


def rows_of(pair: Batch, start: int, count: int) -> Batch:
    """Returns some rows of every tensor."""
    return tf.nest.map_structure(lambda tensor: tensor[start : start + count], pair)


def twice_of(rows: Batch) -> Batch:
    """Returns the rows of every tensor twice."""
    return tf.nest.map_structure(lambda tensor: tf.concat([tensor, tensor], axis=0), rows)

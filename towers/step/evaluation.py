"""The evaluation step: the summed forward passes of the towers, and means over a data set."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from towers.batches.feed import check_end, open_feed
from towers.batches.shards import Batches, Shard, check_batches, check_shards, shard_specs
from towers.devices.placement import Placement, check_present
from towers.processes.agreement import check_same_batches, check_variables
from towers.processes.processes import Processes
from towers.step.carried import Carried
from towers.step.options import StepOptions
from towers.step.probe import Probe
from towers.step.results import EvaluationResults, nothing
from towers.step.sums import Denominators, add_nests
from towers.step.synchronized import Rendezvous
from towers.step.tower import Tower
from towers.step.tower_function import TowerFn, TowerProgram, check_kinds, make_program
from towers.step.traced_step import TracedStep
from towers.travel.packing import upload_for
from towers.travel.pairs import add_in_pairs

Pair = tuple[Any, Any]


def build_evaluation_step(
    tower_fn: TowerFn,
    variables: keras.Model | Sequence[keras.Variable],
    placement: Placement,
    batches: Batches | tf.data.Dataset,
    carried: Carried | None = None,
    seed: int = 0,
    also: Callable[[EvaluationResults], Any] = nothing,
    processes: Processes | None = None,
) -> EvaluationStep:
    """Returns `step(shards, batch_number) -> EvaluationResults`: sums over one batch.

    No variable changes.

    Args:
        tower_fn: as in `build_train_step`, with the model in inference mode.
        variables, placement, batches: as in `build_train_step`. Towers read the model's own
            variables, even if training keeps a copy on each tower.
        carried: a state that is carried from batch to batch, as in `StepOptions`, or None.
            `towers.evaluate_step` begins with zeros; the number of rows may differ from training.
        seed: all random numbers, such as those of a sampled loss, derive from this seed, the
            batch's number and the tower's, so every evaluation draws the same ones.
        also: as in `build_train_step`.
        processes: the processes that evaluate together, each its own rows of every batch, as in
            `build_train_step`.

    Raises:
        ValueError: the variables or the batches are wrong.
    """
    options = StepOptions(carried=carried, seed=seed)
    check_kinds(placement, options, processes)
    specs = shard_specs(batches, len(placement.devices))
    program = make_program(tower_fn, variables, placement, specs, options)
    return EvaluationStep(program, placement, specs, also, processes or Processes())


class EvaluationStep(TracedStep):
    """One step of an evaluation as a callable, made by `build_evaluation_step`.

    No two batches of an evaluation have the same number. A call of several keeps only `also`.

    Attributes:
        variables: what it reads.
        after_batch: called by `evaluate_step` after each batch, such as to show progress, or None.
    """

    def __init__(
        self,
        program: TowerProgram,
        placement: Placement,
        specs: tuple[Shard, ...],
        also: Callable[[EvaluationResults], Any],
        processes: Processes,
    ):
        self.after_batch: Callable[[], object] | None = None
        self._shared, self.variables = program.shared, program.shared.all
        first = processes.first_tower(len(placement.groups))
        self._towers = [
            Tower(program, program.shared.all, group, index, first)
            for index, group in enumerate(placement.groups)
        ]
        probe = Probe(program, self._towers[0], specs[0], processes.count * len(self._towers))
        super().__init__(
            program, specs, placement.devices, placement.device, processes, also, probe=probe
        )

    def _step(self, shards: tuple[Shard, ...], number: tf.Tensor) -> EvaluationResults:
        pairs = zip(self._towers, shards, strict=True)
        upload = upload_for(self._shared.read_whole, [self._device], self.devices)
        with Rendezvous(len(self._towers), self._device, self.processes.count) as rendezvous:
            sums = [tower.evaluate(shard, number, rendezvous, upload) for tower, shard in pairs]
        self.carried.assign([tower.carried for tower in sums])
        with tf.device(self._device), tf.name_scope("results"):
            added = add_in_pairs(add_nests, [tower[:3] for tower in sums])
            return EvaluationResults(*self.processes.sum(added))


def evaluate_step(step: EvaluationStep, dataset: tf.data.Dataset | Batches) -> dict[str, float]:
    """Returns the means over a whole data set: `loss`, each metric, and `examples`.

    Every example (or token) counts exactly once, whatever the batch sizes; sums are kept in
    float64. A metric with zero weight is 0, as in training.

    Args:
        step: the step from `build_evaluation_step`; its carried state is reset to zeros.
        dataset: global batches, or `batches(epoch, first_step)`, whose first epoch is taken.

    Raises:
        ValueError: the data set has no examples, or no end, is not like the step's batches, or is
            another one in other processes.
        RuntimeError: other processes have other variables.
    """
    sums: dict[Any, Pair] = {}
    check_batches(dataset)
    batches = (lambda *_: dataset) if isinstance(dataset, tf.data.Dataset) else dataset
    if step.processes.count > 1:
        check_same_batches(step.processes, batches)
        check_variables(step.processes, {"variables": step.variables})
    shards = step.processes.shards(batches, len(step.devices), 0)
    check_shards(shards, step.specs)
    check_end(shards, None, "limit it with take(...)")
    check_present(step.devices)
    step.carried.reset()
    with open_feed(shards, step.devices) as feed:
        for number, batch in enumerate(feed, 1):
            add_batch(sums, step(batch, number))
            if step.after_batch is not None:
                step.after_batch()
    if not sums or not sums["loss"][1] > 0:
        raise ValueError("There is nothing to evaluate: the data set has no examples.")
    means = {key: mean(*pair) for key, pair in sums.items()}
    losses = [means.pop(key) for key in [*means] if isinstance(key, int)]
    loss = sum(losses) if losses else means["loss"]
    return {**means, "loss": loss, "examples": float(sums["loss"][1])}


def mean(total: np.ndarray, weight: float | None) -> float:
    """Returns a sum divided by its weight, 0 if that is 0; without a weight, the sum."""
    if weight is None:
        return total.tolist()
    return float(total / weight) if weight else 0.0


def add_batch(sums: dict[Any, Pair], results: EvaluationResults) -> None:
    """Adds one batch's pairs (sum, weight) in float64 to the running sums.

    Several losses are kept by their numbers; `loss` then holds the number of examples only.
    """
    pairs: dict[Any, Pair] = {"loss": (results.loss, results.weight), **results.metrics}
    if isinstance(results.weight, Denominators):
        pairs["loss"] = (0.0, results.weight.rows)
        pairs |= enumerate(zip(results.loss, results.weight.weights, strict=True))
    for name, pair in pairs.items():
        total, weight = (None if part is None else np.asarray(part, np.float64) for part in pair)
        before = sums.get(name, (0.0, 0.0))
        sums[name] = (before[0] + total, None if weight is None else before[1] + weight)

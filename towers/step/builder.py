"""The graph builder: a tower per device, one sum, one division, one update.

Read this file first: `TrainStep._step` is the algorithm.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from towers.batches.shards import Batches, Shard, shard_specs
from towers.devices.placement import Placement
from towers.processes.processes import Processes
from towers.saving.checkpoint_files import Groups
from towers.step.exchange import Exchange
from towers.step.options import StepOptions
from towers.step.probe import Probe
from towers.step.results import StepResults, nothing, step_results
from towers.step.sums import TowerSums
from towers.step.synchronized import Rendezvous
from towers.step.tower import Tower
from towers.step.tower_function import TowerFn, TowerProgram, check_kinds, make_program
from towers.step.traced_step import TracedStep
from towers.step.update import Update
from towers.travel.packing import upload_for
from towers.variables.copies import Copies
from towers.variables.optimizers import check_gradients, check_optimizer
from towers.variables.shared_variables import SharedVariables

Also = Callable[[StepResults], Any]


def build_train_step(
    tower_fn: TowerFn,
    variables: keras.Model | Sequence[keras.Variable],
    optimizer: keras.optimizers.Optimizer,
    placement: Placement,
    batches: Batches | tf.data.Dataset,
    options: StepOptions = StepOptions(),
    processes: Processes | None = None,
    also: Also = nothing,
) -> TrainStep:
    """Returns `step(shards, step_number) -> StepResults`, one update from one global batch.

    Args:
        tower_fn: `tower_fn(batch) -> (loss_sum, weight, metrics)` for one shard: the loss summed
            over its examples (or tokens), how many there were, and a dict of sums (or of pairs sum,
            weight). Regularisers enter as `weight * sum(model.losses)`. For losses with different
            denominators it returns a tuple of sums and a tuple of weights; the loss is the sum of
            each one's mean. A loss that is summed but not divided has the weight None, even if it
            is the only one: `(loss,), (None,), {}`. The backward pass is that of the sums: a custom
            gradient that is no multiple of the one it is given, such as a clipped one, has that of
            the sum.
        variables: the Keras variables that `tower_fn` uses, or the model that owns them. An
            unbuilt model is built here, on the parameter device.
        optimizer: a Keras optimizer; it gets averaged (and clipped) gradients once a step.
        placement: the towers' devices and the device of the variables; make the model under
            `placement.scope()`.
        batches: `batches(epoch, first_step)` of global batches, or a data set of them. The shapes
            and dtypes of the shards follow from it.
        options: clipping, micro-batches, seed, precision, carried state.
        processes: the processes that train this model; None for this process alone.
        also: a function of the step's results that runs in the same trace, such as one that keeps
            metrics; what it returns is the step's `also`.

    Raises:
        ValueError: an argument is wrong. Optimizer, batches and variables are checked before the
            step is traced.
    """
    processes = processes or Processes()
    blueprint = draw_blueprint(
        tower_fn, variables, optimizer, placement, batches, options, processes
    )
    return TrainStep(blueprint, Exchange(placement, processes, blueprint.program), also)


class TrainStep(TracedStep):
    """One synchronous step as a callable, made by `build_train_step`.

    A call of several steps ends with an update whose gradient is not finite, unless a smaller loss
    scale may help.

    Attributes:
        towers: the towers of this process.
        exchange: sums over towers, copies of the variables and processes.
        update: changes the variables.
        steps_per_call: as in `StepOptions`.
    """

    def __init__(self, blueprint: Blueprint, exchange: Exchange, also: Also = nothing):
        self.towers = blueprint.towers
        self.exchange = exchange
        self.update = blueprint.update
        self._options = blueprint.program.options
        self.steps_per_call = self._options.steps_per_call
        devices = [tower.device for tower in self.towers]
        super().__init__(
            blueprint.program, blueprint.specs, devices, exchange.device, exchange.processes, also,
            probe=blueprint.probe, returns_each=True,
        )  # fmt: skip

    def _begin(self, source: Any) -> None:
        """Copies what was written since the last call, and asks the tower function once."""
        self.update.copies.refresh()
        super()._begin(source)

    def _end(self, results: Any, also: Any) -> Any:
        self.update.copies.wrote()
        return super()._end(results, also)

    def _goes_on(self, results: StepResults) -> tf.Tensor:
        return results.finite | (results.loss_scale > 1)

    def _step(self, shards: tuple[Shard, ...], step: tf.Tensor) -> StepResults:
        total, each = self.exchange.sum(self._sums(shards, step))
        change = self.update.change(total)
        scales = self.update.apply(change)
        with tf.device(self.exchange.device):
            return step_results(each, total, change, scales)

    def _sums(self, shards: tuple[Shard, ...], step: tf.Tensor) -> list[TowerSums]:
        """Returns each tower's sums; what the losses are divided by is summed before, if needed."""
        pairs, totals = list(zip(self.towers, shards, strict=True)), None
        copies = self.update.copies
        upload = upload_for(copies.shared.read_whole, copies.devices, self.devices)
        if self.towers[0].needs_denominators:
            with self._rendezvous() as rendezvous:
                parts = [tower.weigh(shard, step, upload, rendezvous) for tower, shard in pairs]
            totals = self.exchange.sum_denominators(parts)
        with self._rendezvous() as rendezvous:
            return [tower(shard, step, totals, rendezvous, upload) for tower, shard in pairs]

    def _rendezvous(self) -> Rendezvous:
        """Returns the scope in which the towers are traced."""
        return Rendezvous(len(self.towers), self.exchange.device, self.processes.count)

    def copy_parameters(self) -> None:
        """Copies the model's values to every tower's copy.

        A step does so itself with what was written since the last one. Call this only after writes
        that no step can see: by a raw op, or by a `tf.function` that was traced before this step
        was built.

        Raises:
            RuntimeError: the copies are not bit-identical afterwards.
        """
        self.update.copies.copy_from_model()

    def check_copies(self) -> None:
        """Raises RuntimeError unless all copies of the variables are bit-identical."""
        self.update.copies.check()

    def groups(self) -> Groups:
        """Returns the variables that a checkpoint saves, by group name."""
        return self.update.groups()

    def settings(self) -> dict[str, Any]:
        """Returns the options that must be equal in several processes, by name."""
        own = ("loss_scale", "carried")  # Variables, and what several processes cannot have.
        options = vars(self._options).items()
        return {f"StepOptions.{name}": one for name, one in options if name not in own}

    def averaged(self) -> contextlib.AbstractContextManager[None]:
        """The scope in which the variables hold the optimizer's averages (`use_ema=True`)."""
        return self.update.averaged()


class Blueprint(NamedTuple):
    """What a training step is built from.

    Attributes:
        program: what every tower runs.
        towers: the towers of this process.
        update: changes the variables; `update.copies` are their copies.
        specs: the specs of the shards that a step takes.
        probe: asks the tower function before the first step.
    """

    program: TowerProgram
    towers: list[Tower]
    update: Update
    specs: tuple[Shard, ...]
    probe: Probe


def draw_blueprint(
    tower_fn: TowerFn,
    variables: keras.Model | Sequence[keras.Variable],
    optimizer: keras.optimizers.Optimizer,
    placement: Placement,
    batches: Batches | tf.data.Dataset,
    options: StepOptions,
    processes: Processes,
    *,
    jointly: bool = True,
) -> Blueprint:
    """Returns the blueprint of a step; arguments as in `build_train_step`, which are checked.

    Args:
        jointly: whether all towers share each batch; otherwise each takes whole ones.

    Raises:
        ValueError: an argument is wrong.
    """
    check_optimizer(optimizer)
    check_kinds(placement, options, processes)
    if processes.count > 1:
        placement.check_one_device(f"A training in {processes.count} processes")
    num_shards = len(placement.devices) if jointly else 1
    specs = shard_specs(batches, num_shards)
    program = make_program(tower_fn, variables, placement, specs, options)
    check_trainable(program.shared)
    copies = Copies(program.shared, optimizer, placement.copy_groups)
    first = processes.first_tower(len(placement.devices))
    towers = [
        Tower(program, copies.variables_of(index), group, index, first, alone=not jointly)
        for index, group in enumerate(placement.groups)
    ]
    probe = Probe(program, towers[0], specs[0], processes.count * num_shards * options.accumulate)
    return Blueprint(program, towers, Update(copies, program), specs, probe)


def check_trainable(shared: SharedVariables) -> None:
    """Raises ValueError if no variable is trainable, or one has no gradient that adds up."""
    check_gradients(shared.trainable)
    if not shared.trainable:
        paths = [variable.path for variable in shared.states]
        raise ValueError(
            "There is nothing to train: no variable is trainable. Received "
            f"{paths or 'no variables'}."
        )

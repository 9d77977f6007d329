"""The graph builder: a tower per device, one sum, one division, one update.

Read this file first: `TrainStep._step` is the algorithm.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import keras
import tensorflow as tf

from towers.loop.inputs import Shard
from towers.step.arguments import (
    check_arguments,
    check_optimizer,
    check_trainable,
    report_unconnected,
)
from towers.step.carried import CarriedState, with_state
from towers.step.gradients import Gradient, clip_factor, global_norm
from towers.step.packs import working_placement
from towers.step.parameters import (
    SharedVariables,
    gather_variables,
    parameter_device,
    shared_variables,
)
from towers.step.precision import LossScale
from towers.step.replicas import Replicas
from towers.step.results import StepResults, Totals, mean_results, sum_towers, tower_results
from towers.step.states import mean_states
from towers.step.tower import ShardFn, State, TowerFn, TowerSums, part_seed, run_tower

ReduceAcross = Callable[[Totals], Totals]


def build_train_step(
    tower_fn: TowerFn,
    variables: keras.Model | Sequence[keras.Variable],
    optimizer: keras.optimizers.Optimizer,
    devices: Sequence[str],
    shard_specs: Sequence[Shard],
    *,
    parameters: str = "auto",
    clip_norm: float | None = None,
    accumulate: int = 1,
    batch_norm: str = "mean",
    seed: int = 0,
    loss_scale: LossScale | None = None,
    compiled: bool = False,
    carried: Any = None,
    carried_rows: int | None = None,
    reduce_across: ReduceAcross | None = None,
    first_tower: int = 0,
) -> TrainStep:
    """Returns `step(shards, step_number) -> StepResults`, one update from one global batch.

    Args:
        tower_fn: `tower_fn(batch) -> (loss_sum, weight, metrics)` for one shard: the loss summed
            over its examples (or tokens), how many there were, and a dict of sums (or of pairs
            sum, weight). Regularisers enter as `weight * sum(model.losses)`.
        variables: the Keras variables that it uses, or the model that owns them. An unbuilt
            model is built here, on the parameter device.
        optimizer: a Keras optimizer; it gets averaged (and clipped) gradients once a step.
        devices: one device per tower, in tower order.
        shard_specs: the specs of a tuple of shards, as `towers.shard_specs` returns them.
        parameters: where variables live that this function makes: `auto`, `cpu` or `tower0`; or
            `replicated`, with a copy on every tower, each updated alike from gradients that
            travel between the towers. The model's own variables are the first tower's: make them
            under `shared_variables(parameter_device("replicated", devices))`.
        clip_norm: the norm to which the averaged gradient is clipped, or None.
        accumulate: into how many micro-batches each tower cuts its shard. The result is that of
            the uncut batch, with the memory of a micro-batch.
        batch_norm: how the towers' moving averages become one, once a step: those of the
            `first` tower, or the `mean` over the towers by their weights.
        seed: what all random numbers are derived from, with the step and the part of the batch.
        loss_scale: for float16, else None.
        compiled: whether XLA compiles each tower.
        carried: for a state that goes on from step to step, such as that of a language model on
            contiguous streams: a nest of `tf.TensorSpec`, each of one row. The tower function is
            then `tower_fn(batch, state) -> (loss_sum, weight, metrics, state)`. The state begins
            with zeros, row by row beside the rows of the batch, and carries no gradient; the
            data has to say where a stream begins anew. A step without a finite gradient leaves
            it as it was.
        carried_rows: with `carried`, how many rows every batch has.
        reduce_across: called once, in the graph, with the `Totals` of this process's towers,
            returns those of all processes that train together, sparse gradients with each row
            once; `Processes.sum` does.
        first_tower: the number, among the towers of all processes, of this one's first.

    Raises:
        ValueError: for an argument that cannot work, before anything is traced.
    """
    check_arguments(devices, shard_specs, clip_norm, accumulate, batch_norm)
    check_optimizer(optimizer)
    parameters = working_placement(parameters, devices)
    device = parameter_device(parameters, devices)
    state = CarriedState(carried, carried_rows, devices)
    shard_fn = with_state(tower_fn, state.shard_specs)
    with shared_variables(device):
        pair = (shard_specs[0].batch, state.shard_specs)
        shared = gather_variables(shard_fn, variables, pair, compiled=compiled)
        check_trainable(shared)
        optimizer.build(shared.trainable)
    replicated = parameters == "replicated"
    return TrainStep(
        shard_fn,
        shared,
        optimizer,
        tuple(devices),
        tuple(shard_specs),
        parameter_device=device,
        replicas=Replicas(shared, optimizer, devices if replicated else [device]),
        clip_norm=clip_norm,
        accumulate=accumulate,
        batch_norm=batch_norm,
        seed=seed,
        loss_scale=loss_scale,
        compiled=compiled,
        carried=state,
        reduce_across=reduce_across,
        first_tower=first_tower,
    )


class TrainStep:
    """One synchronous step as a callable, made by `build_train_step`.

    Attributes:
        devices: the towers' devices.
        parameter_device: where the towers meet.
        shared: the variables.
        optimizer: the Keras optimizer.
        loss_scale: the float16 loss scale or None.
        carried: what the towers carry from step to step.
    """

    def __init__(
        self,
        shard_fn: ShardFn,
        shared: SharedVariables,
        optimizer: keras.optimizers.Optimizer,
        devices: tuple[str, ...],
        shard_specs: tuple[Shard, ...],
        *,
        parameter_device: str,
        replicas: Replicas,
        clip_norm: float | None,
        accumulate: int,
        batch_norm: str,
        seed: int,
        loss_scale: LossScale | None,
        compiled: bool,
        carried: CarriedState,
        reduce_across: ReduceAcross | None,
        first_tower: int,
    ):
        self.devices = devices
        self.parameter_device = parameter_device
        self.shared = shared
        self.optimizer = optimizer
        self.loss_scale = loss_scale
        self.carried = carried
        self._shard_fn = shard_fn
        self._replicas = replicas
        self._clip_norm = clip_norm
        self._accumulate = accumulate
        self._batch_norm = batch_norm
        self._seed = seed
        self._compiled = compiled
        self._reduce_across = reduce_across
        self._first_tower = first_tower
        self._stale = True  # Nobody has given the copies values yet.
        self._function = tf.function(
            self._step,
            input_signature=[shard_specs, tf.TensorSpec([], tf.int64)],
            autograph=False,
        )

    def __call__(self, shards: tuple[Shard, ...], step: int | tf.Tensor) -> StepResults:
        """Runs the step of this number (the first is 1) and returns its results."""
        self.carried.check_rows(shards)
        if self._stale:
            self.copy_parameters()
        return self._traced(shards, tf.convert_to_tensor(step, tf.int64))

    @property
    def num_copies(self) -> int:
        """How many copies of the variables there are: one, or one for each tower."""
        return len(self._replicas)

    def copy_parameters(self) -> None:
        """Gives every tower's copy the model's values, after these were assigned by hand.

        Before the first step that is done by itself. RuntimeError unless the copies are then the
        same to the last bit.
        """
        self._replicas.copy_first()
        self._replicas.check()
        self._stale = False

    def check_parameters(self) -> None:
        """Raises RuntimeError unless the towers' copies are the same to the last bit."""
        if not self._stale:
            self._replicas.check()

    @property
    def graph(self) -> tf.Graph:
        """The graph that runs, with a name scope for each tower."""
        return self._traced.graph

    @functools.cached_property
    def _traced(self) -> Any:
        """The one trace. A call of it takes half a millisecond less than one that looks it up."""
        return self._function.get_concrete_function()

    def _step(self, shards: tuple[Shard, ...], step: tf.Tensor) -> StepResults:
        towers = [
            self._tower(tower, device, shard, step)
            for tower, (device, shard) in enumerate(zip(self.devices, shards, strict=True))
        ]
        with tf.device(self.parameter_device), tf.name_scope("average"):
            total, sums = self._sum(towers)
            share = tf.math.reciprocal_no_nan(total.weight)
            norm = global_norm(total.gradients, total.weight.dtype) * share
            factor = share * clip_factor(norm, self._clip_norm)
            states = mean_states(total.states, total.state_weight, self.shared.states)

        with tf.device(self.parameter_device), tf.name_scope("update"):
            learning_rate = tf.convert_to_tensor(self.optimizer.learning_rate)
            loss_scale = tf.ones([]) if self.loss_scale is None else self.loss_scale.read()
            finite = tf.math.is_finite(norm)
            carried = [tower.carried for tower in towers]
            tf.cond(finite, lambda: self._apply(sums, factor, states, carried), lambda: None)
            if self.loss_scale is not None:
                self.loss_scale.update(finite)

        with tf.device(self.parameter_device), tf.name_scope("results"):
            alone = len(towers) == 1 and self._reduce_across is None
            return StepResults(
                **mean_results([total]),
                gradient_norm=norm,
                learning_rate=learning_rate,
                finite=finite,
                loss_scale=loss_scale,
                towers=tower_results(towers, self.devices, norm if alone else None),
            )

    def _tower(self, tower: int, device: str, shard: Shard, step: tf.Tensor) -> TowerSums:
        scale = None if self.loss_scale is None else self.loss_scale.read()
        first_part = (self._first_tower + tower) * self._accumulate
        parts = range(first_part, first_part + self._accumulate)
        with tf.device(device), tf.name_scope(f"tower_{tower}"):
            with tf.name_scope("parameters"):
                values = self._replicas.read(tower)
            return run_tower(
                self._shard_fn,
                self.shared,
                values,
                self.carried.attach(tower, shard),
                tower=self._first_tower + tower,
                seeds=[part_seed(self._seed, step, part) for part in parts],
                loss_scale=scale,
                compiled=self._compiled,
            )

    def _sum(self, towers: list[TowerSums]) -> tuple[Totals, list[list[Gradient]]]:
        """Returns the sums over all towers, and the gradients of these for every copy."""
        sums = self._replicas.sum([tower.gradients for tower in towers])
        total = sum_towers(towers, sums[0], self._batch_norm, leads=self._first_tower == 0)
        if self._reduce_across is None:
            return total, sums
        total = self._reduce_across(total)
        return total, [total.gradients] * len(sums)

    def _apply(
        self,
        sums: list[list[Gradient]],
        factor: tf.Tensor,
        states: list[tf.Tensor | None],
        carried: list[State],
    ) -> None:
        """Updates every variable with a gradient, assigned states and what the towers carry."""
        report_unconnected(self.shared.trainable, sums[0])
        self._replicas.apply(sums, factor, states)
        self.carried.assign(carried)

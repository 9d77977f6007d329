"""The same towers under `tf.distribute.MirroredStrategy`, for comparison with it."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf
from tensorflow.types.experimental import ConcreteFunction

from towers.batches.shards import Batches, Shard, shard_specs
from towers.processes.processes import Processes
from towers.saving.checkpoint_files import Groups
from towers.step.carried import CarriedState
from towers.step.exchange import EachTower, total_of
from towers.step.options import StepOptions
from towers.step.program import TowerProgram
from towers.step.results import StepResults, step_results, tower_norms
from towers.step.states import merge_states
from towers.step.sums import TowerSums, stack_nests, sum_results
from towers.step.tower import Tower
from towers.step.tower_function import ShardFn, TowerFn
from towers.step.tracing import number_on_host
from towers.step.update import Change, Scales, average
from towers.travel.gradients import scale_gradients, sum_repeated_rows
from towers.variables.optimizers import Averaged, check_optimizer
from towers.variables.shared_variables import SharedVariables


def build_mirrored_step(
    tower_fn: TowerFn,
    model: keras.Model,
    optimizer: keras.optimizers.Optimizer,
    strategy: tf.distribute.MirroredStrategy,
    devices: Sequence[str],
    batches: Batches | tf.data.Dataset,
    options: StepOptions = StepOptions(),
) -> MirroredStep:
    """Returns `step(shards, step_number) -> StepResults` with one replica per tower.

    As usual under this strategy, each replica keeps its own moving averages of BatchNorm.

    Args:
        tower_fn, batches: as in `build_train_step`, without a carried state.
        model, optimizer: made under the strategy's scope; the model is built.
        strategy: a strategy on these devices.
        devices: one TensorFlow device name per replica.
        options: as in `build_train_step`, without a carried state and a loss scale; `batch_norm`
            has no effect.

    Raises:
        ValueError: the batches are wrong, the optimizer unscales gradients, or the options have a
            carried state or a loss scale.
    """
    if options.carried is not None or options.loss_scale is not None:
        raise ValueError(
            "A step under MirroredStrategy has no carried state and adapts no loss scale. Received "
            f"carried={options.carried}, loss_scale={options.loss_scale}; use build_train_step."
        )
    check_optimizer(optimizer)
    if not optimizer.built:
        with strategy.scope():
            optimizer.build(model.trainable_variables)
    carried = CarriedState(None, devices)
    shared = SharedVariables(model.variables, [])
    program = TowerProgram(ShardFn(tower_fn), shared, carried)
    towers = [
        Tower(program, shared.all, device, index, options) for index, device in enumerate(devices)
    ]
    apply_as_given(optimizer)
    specs = shard_specs(batches, len(devices))
    return MirroredStep(towers, shared, optimizer, strategy, options.clip_norm, specs)


def apply_as_given(optimizer: Any) -> None:
    """Makes an optimizer apply gradients that are already summed over the replicas.

    Keras would sum them itself, but only after clipping, and without a norm of the summed gradient.
    """
    optimizer._all_reduce_sum_gradients = lambda gradients_and_variables: gradients_and_variables


class MirroredStep:
    """A step under MirroredStrategy, called as a `TrainStep` is, made by `build_mirrored_step`.

    Args:
        towers: one per replica.
        shared: the mirrored variables; an assigned value reaches every device.
        optimizer: the optimizer of these variables.
        strategy: the strategy.
        clip_norm: the norm to which the averaged gradient is clipped, or None.
        shard_specs: the specs of each tower's shard.

    Attributes:
        devices: the towers' devices.
        processes: this process alone.
    """

    def __init__(
        self,
        towers: Sequence[Tower],
        shared: SharedVariables,
        optimizer: keras.optimizers.Optimizer,
        strategy: tf.distribute.MirroredStrategy,
        clip_norm: float | None,
        shard_specs: tuple[Shard, ...],
    ):
        self.devices = [tower.device for tower in towers]
        self.processes = Processes()
        self._towers = list(towers)
        self._shared = shared
        self._optimizer = optimizer
        self._strategy = strategy
        self._clip_norm = clip_norm
        signature = [shard_specs, tf.TensorSpec([], tf.int64)]
        self._function = tf.function(self._step, input_signature=signature, autograph=False)

    def __call__(self, shards: tuple[Shard, ...], step: int) -> StepResults:
        """Runs the step with this number (the first is 1) and returns its results.

        Args:
            shards: one shard per tower, as `towers.engine.split` cuts a batch.
            step: the step's number.
        """
        return self._traced(shards, number_on_host(step))

    def _step(self, shards: tuple[Shard, ...], step: tf.Tensor) -> StepResults:
        scales = Scales(tf.identity(self._optimizer.learning_rate), tf.ones([]))
        sums, change = self._strategy.run(self._run_replica, args=(shards, step))
        finite = self._of_replicas(change.finite)[0]
        tf.cond(finite, lambda: self._strategy.run(self._apply, args=(change,)), lambda: None)
        towers = self._each(sums)
        total, change = total_of(sum_replicas(towers)), self._each(change)[0]
        norms = tower_norms(towers, self.devices) if len(towers) > 1 else [None]
        rows = zip(towers, norms, strict=True)
        each = [EachTower(one.loss, one.weight, one.metrics, norm) for one, norm in rows]
        return step_results(stack_nests(each), total, change, scales)

    def _run_replica(self, shards: tuple[Shard, ...], step: tf.Tensor) -> tuple[TowerSums, Change]:
        """Returns a replica's own sums, and the change, which is the same on all replicas."""
        replicas: Any = tf.distribute.get_replica_context()
        index = int(tf.get_static_value(replicas.replica_id_in_sync_group))
        tower = self._towers[index]
        with tower.scope():
            sums = tower.run(tower.read(), shards[index], step, alone=True)
        self._assign_states(sums)
        *gradients, weight = sum_over_replicas(replicas, [*sums.gradients, sums.weight])
        gradients = list(map(sum_repeated_rows, gradients))
        change = average(
            total_of(sums._replace(gradients=gradients, weight=weight, states=[])),
            self._clip_norm,
        )
        return sums._replace(states=[]), change

    def _assign_states(self, sums: TowerSums) -> None:
        """Assigns a tower's new values to the replica's non-trainable variables."""
        states = self._shared.states
        before = [state.value for state in states]
        values = merge_states(states, sums.states, sums.weight, before)
        for state, value in zip(states, values, strict=True):
            if value is not None:
                state.assign(value)

    def _apply(self, change: Change) -> None:
        gradients = scale_gradients(change.gradients[0], change.factor)
        self._optimizer.apply(gradients, self._shared.trainable)

    def assign(self, values: Sequence[keras.Variable]) -> None:
        """Assigns the values of another model's variables, in the same order, to every replica."""
        for variable, source in zip(self._shared.all, values, strict=True):
            variable.assign(source.value)

    def copy_to(self, variables: Sequence[keras.Variable]) -> None:
        """Assigns the values of the first replica to another model's variables, in order."""
        for variable, target in zip(self._shared.all, variables, strict=True):
            target.assign(self._of_replicas(variable.value)[0])

    def groups(self) -> Groups:
        """Returns the variables that a checkpoint saves, by group name."""
        return {"variables": self._shared.all, "optimizer": self._optimizer.variables}

    def averaged(self) -> contextlib.AbstractContextManager[None]:
        """The scope in which the variables hold the optimizer's averages (`use_ema=True`)."""
        return Averaged(self._optimizer, self._shared.trainable)

    def check_copies(self) -> None:
        """Does nothing: the strategy's own copies are not compared."""

    @property
    def graph(self) -> tf.Graph:
        """The step's graph."""
        return self._traced.graph

    @functools.cached_property
    def _traced(self) -> ConcreteFunction:
        return self._function.get_concrete_function()

    def _each(self, nest: Any) -> list[Any]:
        """Returns one nest per replica."""
        rows = zip(*map(self._of_replicas, tf.nest.flatten(nest)), strict=True)
        return [tf.nest.pack_sequence_as(nest, row) for row in rows]

    def _of_replicas(self, value: Any) -> tuple[Any, ...]:
        """Returns the value on each replica."""
        if value is None:
            return (None,) * len(self.devices)
        return self._strategy.experimental_local_results(value)


def sum_over_replicas(replicas: Any, values: Sequence[Any]) -> list[Any]:
    """Returns the sums over all replicas, in a replica's context; None stays None."""
    present = [value for value in values if value is not None]
    sums = iter(replicas.all_reduce(tf.distribute.ReduceOp.SUM, present))
    return [None if value is None else next(sums) for value in values]


def sum_replicas(towers: Sequence[TowerSums]) -> TowerSums:
    """Returns the first tower's sums with loss, weight and metrics summed over all towers."""
    loss, weight, metrics = sum_results(towers)
    return towers[0]._replace(loss=loss, weight=weight, metrics=metrics)

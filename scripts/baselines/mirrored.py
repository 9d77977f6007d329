"""A hand-written step under `tf.distribute.MirroredStrategy`, as Keras users write it."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

import towers
from towers.loop.inputs import Shard
from towers.scripts.baselines.rivals import Task, mirror
from towers.step.carried import CarriedState
from towers.step.gradients import clip_factor, global_norm, scale_gradients, sum_repeated_rows
from towers.step.parameters import SharedVariables
from towers.step.results import StepResults, mean_results, tower_results
from towers.step.tower import TowerSums, metric_sums, part_seed, seed_states


class MirroredStep:
    """A step under MirroredStrategy, called as a `TrainStep` is, with one replica for a tower.

    The towers' optimizer, data and random numbers are used. The variables are mirrored: what is
    assigned to one is assigned on every device.

    Args:
        task: what is trained.
        devices: one for each replica.
        seed: what all random numbers are derived from.

    Attributes:
        devices, parameter_device, shared, optimizer, loss_scale, carried: as in `TrainStep`.
        num_copies: how many copies of the variables there are.
    """

    def __init__(self, task: Task, devices: Sequence[str], *, seed: int):
        self._strategy, model, self.optimizer = mirror(task, devices, task.make_optimizer)
        apply_as_given(self.optimizer)
        self._tower_fn = task.make_tower_fn(model)
        self._clip_norm = task.recipe.fields.clip_norm or None
        self._seed = seed
        self.devices = tuple(devices)
        self.parameter_device = devices[0]
        self.num_copies = len(devices)
        self.shared = SharedVariables(model.variables, [])
        self.loss_scale = None
        self.carried = CarriedState(None, None, devices)
        specs = towers.shard_specs(task.dataset, len(devices))
        signature = [specs, tf.TensorSpec([], tf.int64)]
        self._function = tf.function(self._step, input_signature=signature, autograph=False)

    def __call__(self, shards: tuple[Shard, ...], step: int) -> StepResults:
        """Runs the step of this number (the first is 1) and returns its results."""
        return self._traced(shards, tf.convert_to_tensor(step, tf.int64))

    @property
    def graph(self) -> tf.Graph:
        """The graph that runs."""
        return self._traced.graph

    @functools.cached_property
    def _traced(self) -> Any:
        return self._function.get_concrete_function()

    def check_parameters(self) -> None:
        """Does nothing: the strategy's own copies are not compared."""

    def assign(self, variables: SharedVariables) -> None:
        """Gives the variables of every replica the values of a model of the same kind."""
        for variable, source in zip(self.shared.all, variables.all, strict=True):
            variable.assign(source.value)

    def copy_to(self, variables: SharedVariables) -> None:
        """Gives a model of the same kind the values of the first replica."""
        for variable, target in zip(self.shared.all, variables.all, strict=True):
            target.assign(self._of_replicas(variable.value)[0])

    def _step(self, shards: tuple[Shard, ...], step: tf.Tensor) -> StepResults:
        learning_rate = tf.convert_to_tensor(self.optimizer.learning_rate)
        sums, gradients, norms = self._strategy.run(self._differentiate, args=(shards, step))
        towers = self._towers(sums)
        norm = self._of_replicas(norms)[0]
        finite = tf.math.is_finite(norm)
        tf.cond(finite, lambda: self._strategy.run(self._apply, args=(gradients,)), lambda: None)
        return StepResults(
            **mean_results(towers),
            gradient_norm=norm,
            learning_rate=learning_rate,
            finite=finite,
            loss_scale=tf.ones([]),
            towers=tower_results(towers, self.devices, norm if len(towers) == 1 else None),
        )

    def _differentiate(self, shards: tuple[Shard, ...], step: tf.Tensor) -> tuple:
        """Returns a replica's own sums, the averaged and clipped gradients, and their norm."""
        replicas: Any = tf.distribute.get_replica_context()
        index = int(tf.get_static_value(replicas.replica_id_in_sync_group))
        self._set_seeds(step, index)
        shard = shards[index]
        with tf.GradientTape() as tape:
            loss, weight, metrics = self._tower_fn(shard.batch)
            counts = tf.cast(shard.size > 0, loss.dtype)
            loss *= counts
        weight = tf.cast(weight, loss.dtype) * counts
        gradients = tape.gradient(loss, [v.value for v in self.shared.trainable])
        gradients = [sum_repeated_rows(gradient) for gradient in gradients]
        metrics = {key: metric_sums(value, weight, counts) for key, value in metrics.items()}
        sums = TowerSums(loss, weight, metrics, gradients, states=[], carried=())
        *totals, total = sum_over(replicas, [*gradients, weight])
        share = tf.math.reciprocal_no_nan(total)
        totals = [sum_repeated_rows(gradient) for gradient in totals]
        norm = global_norm(totals, weight.dtype) * share
        averaged = scale_gradients(totals, share * clip_factor(norm, self._clip_norm))
        return sums, averaged, norm

    def _apply(self, gradients: list[Any]) -> None:
        self.optimizer.apply(gradients, self.shared.trainable)

    def _set_seeds(self, step: tf.Tensor, tower: int) -> None:
        """Gives a replica's seed generators the states that its tower would give them."""
        seed = part_seed(self._seed, step, tower)
        generators = self.shared.seeds
        for generator, state in zip(generators, seed_states(seed, len(generators)), strict=True):
            generator.assign(state)

    def _towers(self, sums: TowerSums) -> list[TowerSums]:
        """Returns the sums of each replica."""
        rows = zip(*map(self._of_replicas, tf.nest.flatten(sums)), strict=True)
        return [tf.nest.pack_sequence_as(sums, row) for row in rows]

    def _of_replicas(self, value: Any) -> tuple:
        """Returns the value on each replica."""
        if value is None:
            return (None,) * len(self.devices)
        return self._strategy.experimental_local_results(value)


def sum_over(replicas: Any, values: Sequence[Any]) -> list[Any]:
    """Returns the sums over the replicas, within one of them; None stays None."""
    present = [value for value in values if value is not None]
    sums = iter(replicas.all_reduce(tf.distribute.ReduceOp.SUM, present))
    return [None if value is None else next(sums) for value in values]


def apply_as_given(optimizer: Any) -> None:
    """Makes an optimizer apply gradients as they are: they are summed over the replicas before.

    By default it would sum them, but only after they were clipped and after their norm could have
    been taken.
    """
    optimizer._all_reduce_sum_gradients = lambda gradients_and_variables: gradients_and_variables

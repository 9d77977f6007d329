"""The evaluation step: the towers' forward passes, their sums added up."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

from towers.loop.inputs import Shard
from towers.step.arguments import check_arguments
from towers.step.carried import CarriedState, with_state
from towers.step.parameters import (
    SharedVariables,
    gather_variables,
    parameter_device,
    shared_variables,
)
from towers.step.results import EvaluationResults, total_results
from towers.step.tower import ShardFn, TowerFn, TowerSums, forward, part_seed


def build_evaluation_step(
    tower_fn: TowerFn,
    variables: keras.Model | Sequence[keras.Variable],
    devices: Sequence[str],
    shard_specs: Sequence[Shard],
    *,
    parameters: str = "auto",
    carried: Any = None,
    carried_rows: int | None = None,
) -> EvaluationStep:
    """Returns `step(shards) -> EvaluationResults`: sums over one batch, no variable changed.

    Args:
        tower_fn: as in `build_train_step`, with the model in inference mode.
        variables, devices, shard_specs, parameters: as in `build_train_step`.
        carried, carried_rows: as in `build_train_step`, of which this state is independent:
            `towers.evaluate` begins with zeros, and the number of rows may be another.
    """
    check_arguments(devices, shard_specs)
    device = parameter_device(parameters, devices)
    state = CarriedState(carried, carried_rows, devices)
    shard_fn = with_state(tower_fn, state.shard_specs)
    with shared_variables(device):
        pair = (shard_specs[0].batch, state.shard_specs)
        shared = gather_variables(shard_fn, variables, pair)
    return EvaluationStep(shard_fn, shared, device, tuple(devices), tuple(shard_specs), state)


class EvaluationStep:
    """One step of an evaluation as a callable, made by `build_evaluation_step`.

    Attributes:
        carried: what the towers carry from batch to batch.
    """

    def __init__(
        self,
        shard_fn: ShardFn,
        shared: SharedVariables,
        parameter_device: str,
        devices: tuple[str, ...],
        shard_specs: tuple[Shard, ...],
        carried: CarriedState,
    ):
        self.carried = carried
        self._shard_fn = shard_fn
        self._shared = shared
        self._parameter_device = parameter_device
        self._devices = devices
        self._function = tf.function(self._step, input_signature=[shard_specs], autograph=False)

    def __call__(self, shards: tuple[Shard, ...]) -> EvaluationResults:
        """Runs the towers on one batch and returns its sums."""
        self.carried.check_rows(shards)
        return self._function(shards)

    def _step(self, shards: tuple[Shard, ...]) -> EvaluationResults:
        towers = [
            self._tower(tower, device, shard)
            for tower, (device, shard) in enumerate(zip(self._devices, shards, strict=True))
        ]
        self.carried.assign([tower.carried for tower in towers])
        with tf.device(self._parameter_device), tf.name_scope("results"):
            return EvaluationResults(*total_results(towers))

    def _tower(self, tower: int, device: str, shard: Shard) -> TowerSums:
        with tf.device(device), tf.name_scope(f"tower_{tower}"):
            seed = part_seed(0, tf.zeros([], tf.int64), tower)
            values, shard = self._shared.read(), self.carried.attach(tower, shard)
            return forward(self._shard_fn, self._shared, values, shard, tower=tower, seed=seed)

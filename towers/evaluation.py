"""The evaluation step: the towers' forward passes, their sums added up."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import keras
import tensorflow as tf

from towers.builder import check_arguments
from towers.inputs import Shard
from towers.parameters import gather_variables, parameter_device, shared_variables
from towers.results import EvaluationResults, total_results
from towers.tower import TowerFn, forward, step_seed


def build_evaluation_step(
    tower_fn: TowerFn,
    variables: keras.Model | Sequence[keras.Variable],
    devices: Sequence[str],
    shard_specs: Sequence[Shard],
    *,
    parameters: str = "auto",
) -> Callable[[tuple[Shard, ...]], EvaluationResults]:
    """Returns `step(shards) -> EvaluationResults`: sums over one batch, no variable changed.

    Args:
        tower_fn: as in `build_train_step`, with the model in inference mode.
        variables, devices, shard_specs, parameters: as in `build_train_step`.
    """
    check_arguments(devices, shard_specs)
    device = parameter_device(parameters, devices)
    with shared_variables(device):
        shared = gather_variables(tower_fn, variables, shard_specs[0].batch)

    @tf.function(input_signature=[tuple(shard_specs)], autograph=False)
    def evaluation_step(shards: tuple[Shard, ...]) -> EvaluationResults:
        towers = []
        for tower, (tower_device, shard) in enumerate(zip(devices, shards, strict=True)):
            with tf.device(tower_device), tf.name_scope(f"tower_{tower}"):
                seed = step_seed(0, tf.zeros([], tf.int64), tower)
                values = shared.read()
                towers.append(forward(tower_fn, shared, values, shard, tower=tower, seed=seed))
        with tf.device(device), tf.name_scope("results"):
            return EvaluationResults(*total_results(towers))

    return evaluation_step

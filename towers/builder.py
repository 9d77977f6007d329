"""The graph builder: a tower per device, one sum, one division, one update.

Read this file first: `TrainStep._step` is the algorithm.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from towers.gradients import Gradient, clip_factor, global_norm, scale_gradients, sum_gradients
from towers.inputs import Shard
from towers.parameters import (
    SharedVariables,
    gather_variables,
    parameter_device,
    shared_variables,
)
from towers.precision import LossScale
from towers.tower import TowerFn, TowerSums, fold_in, forward, run_tower

ReduceAcross = Callable[[list[Gradient], tf.Tensor], tuple[list[Gradient], tf.Tensor]]
BATCH_NORM_POLICIES = ("first", "mean")


class TowerResults(NamedTuple):
    """Each tower's own part of a step, every tensor of shape [num_towers].

    Attributes:
        loss: mean over the tower's shard; 0 for an empty shard, as for the metrics.
        weight: how many examples (or tokens) the shard holds.
        metrics: by name, the mean over the tower's shard.
        gradient_norm: norm of the tower's own mean gradient.
    """

    loss: tf.Tensor
    weight: tf.Tensor
    metrics: dict[str, tf.Tensor]
    gradient_norm: tf.Tensor


class StepResults(NamedTuple):
    """What one step returns, scalars over the whole batch.

    Attributes:
        loss: mean over every example (or token) of the batch, before the update.
        weight: how many there were.
        metrics: by name, the mean over the batch.
        gradient_norm: norm of the averaged gradient, before it is clipped.
        learning_rate: what this update used.
        finite: bool, whether the gradient was finite and the update therefore applied.
        loss_scale: the scale of float16 losses in this step, 1 without.
        towers: each tower's part.
    """

    loss: tf.Tensor
    weight: tf.Tensor
    metrics: dict[str, tf.Tensor]
    gradient_norm: tf.Tensor
    learning_rate: tf.Tensor
    finite: tf.Tensor
    loss_scale: tf.Tensor
    towers: TowerResults


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
    reduce_across: ReduceAcross | None = None,
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
        parameters: where variables live that this function makes: `auto`, `cpu` or `tower0`.
        clip_norm: the norm to which the averaged gradient is clipped, or None.
        accumulate: into how many micro-batches each tower cuts its shard. The result is that of
            the uncut batch, with the memory of a micro-batch.
        batch_norm: how the towers' moving averages become one, once a step: those of the
            `first` tower, or the `mean` over the towers by their weights.
        seed: what all random numbers in the towers are derived from, with step and tower.
        loss_scale: for float16, else None.
        compiled: whether XLA compiles each tower.
        reduce_across: called once with the gradients and the weight summed over the towers,
            returns both summed over the processes that train together.

    Raises:
        ValueError: for an argument that cannot work, before anything is traced.
    """
    check_arguments(devices, shard_specs, clip_norm, accumulate, batch_norm)
    device = parameter_device(parameters, devices)
    with shared_variables(device):
        shared = gather_variables(tower_fn, variables, shard_specs[0].batch, compiled=compiled)
        check_trainable(shared)
        optimizer.build(shared.trainable)
    return TrainStep(
        tower_fn,
        shared,
        optimizer,
        tuple(devices),
        tuple(shard_specs),
        parameter_device=device,
        clip_norm=clip_norm,
        accumulate=accumulate,
        batch_norm=batch_norm,
        seed=seed,
        loss_scale=loss_scale,
        compiled=compiled,
        reduce_across=reduce_across,
    )


class TrainStep:
    """One synchronous step as a callable, made by `build_train_step`.

    Attributes:
        devices: the towers' devices.
        parameter_device: where the towers meet.
        shared: the variables.
        optimizer: the Keras optimizer.
        loss_scale: the float16 loss scale or None.
    """

    def __init__(
        self,
        tower_fn: TowerFn,
        shared: SharedVariables,
        optimizer: keras.optimizers.Optimizer,
        devices: tuple[str, ...],
        shard_specs: tuple[Shard, ...],
        *,
        parameter_device: str,
        clip_norm: float | None,
        accumulate: int,
        batch_norm: str,
        seed: int,
        loss_scale: LossScale | None,
        compiled: bool,
        reduce_across: ReduceAcross | None,
    ):
        self.devices = devices
        self.parameter_device = parameter_device
        self.shared = shared
        self.optimizer = optimizer
        self.loss_scale = loss_scale
        self._tower_fn = tower_fn
        self._clip_norm = clip_norm
        self._accumulate = accumulate
        self._batch_norm = batch_norm
        self._seed = seed
        self._compiled = compiled
        self._reduce_across = reduce_across
        self._function = tf.function(
            self._step,
            input_signature=[shard_specs, tf.TensorSpec([], tf.int64)],
            autograph=False,
        )

    def __call__(self, shards: tuple[Shard, ...], step: int | tf.Tensor) -> StepResults:
        """Runs the step of this number (the first is 1) and returns its results."""
        return self._function(shards, tf.convert_to_tensor(step, tf.int64))

    @property
    def graph(self) -> tf.Graph:
        """The graph that runs, with a name scope for each tower."""
        return self._function.get_concrete_function().graph

    def _step(self, shards: tuple[Shard, ...], step: tf.Tensor) -> StepResults:
        towers = [
            self._tower(tower, device, shard, step)
            for tower, (device, shard) in enumerate(zip(self.devices, shards, strict=True))
        ]
        with tf.device(self.parameter_device), tf.name_scope("average"):
            gradients = sum_gradients([tower.gradients for tower in towers])
            weight = tf.add_n([tower.weight for tower in towers])
            if self._reduce_across is not None:
                gradients, weight = self._reduce_across(gradients, weight)
            share = tf.math.reciprocal_no_nan(weight)
            norm = global_norm(gradients, weight.dtype) * share
            factor = share * clip_factor(norm, self._clip_norm)
            gradients = scale_gradients(gradients, factor)
            states = merge_states(towers, self.shared.states, self._batch_norm)

        with tf.device(self.parameter_device), tf.name_scope("update"):
            learning_rate = tf.convert_to_tensor(self.optimizer.learning_rate)
            loss_scale = tf.ones([]) if self.loss_scale is None else self.loss_scale.read()
            finite = tf.math.is_finite(norm)
            tf.cond(finite, lambda: self._apply(gradients, states), lambda: None)
            if self.loss_scale is not None:
                self.loss_scale.update(finite)

        with tf.device(self.parameter_device), tf.name_scope("results"):
            return StepResults(
                **mean_results(towers),
                gradient_norm=norm,
                learning_rate=learning_rate,
                finite=finite,
                loss_scale=loss_scale,
                towers=tower_results(towers, self.devices, norm),
            )

    def _tower(self, tower: int, device: str, shard: Shard, step: tf.Tensor) -> TowerSums:
        scale = None if self.loss_scale is None else self.loss_scale.read()
        with tf.device(device), tf.name_scope(f"tower_{tower}"):
            return run_tower(
                self._tower_fn,
                self.shared,
                shard,
                tower=tower,
                seed=step_seed(self._seed, step, tower),
                accumulate=self._accumulate,
                loss_scale=scale,
                compiled=self._compiled,
            )

    def _apply(self, gradients: list[Gradient], states: list[tf.Tensor | None]) -> None:
        """Updates every variable that has a gradient, and the states that were assigned."""
        pairs = list(zip(gradients, self.shared.trainable, strict=True))
        connected = [pair for pair in pairs if pair[0] is not None]
        report_unconnected([variable.path for part, variable in pairs if part is None], connected)
        self.optimizer.apply(*zip(*connected, strict=True))
        for state, value in zip(self.shared.states, states, strict=True):
            if value is not None:
                state.assign(value)


class EvaluationResults(NamedTuple):
    """The sums over one batch and all towers: add them up, then divide.

    Attributes:
        loss: scalar, summed over the examples (or tokens).
        weight: scalar, how many there were.
        metrics: by name, a pair of scalars (sum, weight).
    """

    loss: tf.Tensor
    weight: tf.Tensor
    metrics: dict[str, tuple[tf.Tensor, tf.Tensor]]


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


def check_arguments(
    devices: Sequence[str],
    shard_specs: Sequence[Shard],
    clip_norm: float | None = None,
    accumulate: int = 1,
    batch_norm: str = "mean",
) -> None:
    """Raises ValueError for arguments that no step can be built from."""
    if isinstance(devices, str) or not devices:
        raise ValueError(
            f"devices must be a sequence of device names, one per tower. Received {devices!r}."
        )
    if len(shard_specs) != len(devices):
        raise ValueError(
            f"There must be one shard per tower. Received specs of {len(shard_specs)} shards "
            f"for {len(devices)} towers; use towers.shard_specs(batches, {len(devices)})."
        )
    if clip_norm is not None and not clip_norm > 0:
        raise ValueError(f"clip_norm must be above 0, or None. Received {clip_norm}.")
    if accumulate < 1:
        raise ValueError(f"accumulate must be at least 1. Received {accumulate}.")
    if batch_norm not in BATCH_NORM_POLICIES:
        raise ValueError(
            f"batch_norm must be one of {', '.join(BATCH_NORM_POLICIES)}. Received {batch_norm!r}."
        )


def check_trainable(shared: SharedVariables) -> None:
    """Raises ValueError if there is nothing to train."""
    if not shared.trainable:
        paths = [variable.path for variable in shared.states]
        raise ValueError(
            "There is nothing to train: none of the variables is trainable. Received "
            f"{paths or 'no variables'}."
        )


def step_seed(seed: int, step: tf.Tensor, tower: int) -> tf.Tensor:
    """Returns the seed of one tower in one step, int64 [2]."""
    return fold_in(fold_in(tf.constant([seed, 0], tf.int64), step), tower)


def merge_states(
    towers: Sequence[TowerSums], states: Sequence[keras.Variable], policy: str
) -> list[tf.Tensor | None]:
    """Returns one value for each non-trainable variable, None where no tower assigned it."""
    counted = towers if policy == "mean" else towers[:1]
    weight = tf.add_n([tower.weight for tower in counted])
    values = zip(*[tower.states for tower in counted], strict=True)
    return [merge_state(*pair, weight) for pair in zip(states, values, strict=True)]


def merge_state(
    state: keras.Variable, values: Sequence[tf.Tensor | None], weight: tf.Tensor
) -> tf.Tensor | None:
    """Returns the weighted mean of a state's weighted values; whole numbers are the first's.

    Without any weight (all of it padding) the state stays as it is.
    """
    present = [value for value in values if value is not None]
    if not present or not present[0].dtype.is_floating:
        return present[0] if present else None
    mean = tf.add_n(present) / tf.cast(weight, present[0].dtype)
    return tf.where(weight > 0, mean, tf.convert_to_tensor(state.value))


def total_results(towers: Sequence[TowerSums]) -> tuple[tf.Tensor, tf.Tensor, dict]:
    """Returns loss, weight and metrics summed over the towers."""
    loss = tf.add_n([tower.loss for tower in towers])
    weight = tf.add_n([tower.weight for tower in towers])
    metrics = tf.nest.map_structure(
        lambda *parts: tf.add_n(parts), *[tower.metrics for tower in towers]
    )
    return loss, weight, metrics


def mean_results(towers: Sequence[TowerSums]) -> dict[str, Any]:
    """Returns the mean loss and metrics of the batch, with its weight."""
    loss, weight, metrics = total_results(towers)
    means = {key: tf.math.divide_no_nan(*pair) for key, pair in metrics.items()}
    return {"loss": tf.math.divide_no_nan(loss, weight), "weight": weight, "metrics": means}


def tower_results(
    towers: Sequence[TowerSums], devices: Sequence[str], norm: tf.Tensor
) -> TowerResults:
    """Returns each tower's means; the only tower's gradient norm is the averaged one."""
    each = [mean_results([tower]) for tower in towers]
    norms = [norm] if len(towers) == 1 else list(map(own_norm, towers, devices))
    return TowerResults(
        loss=tf.stack([mean["loss"] for mean in each]),
        weight=tf.stack([mean["weight"] for mean in each]),
        metrics={
            key: tf.stack([mean["metrics"][key] for mean in each]) for key in each[0]["metrics"]
        },
        gradient_norm=tf.stack(norms),
    )


def own_norm(tower: TowerSums, device: str) -> tf.Tensor:
    """Returns the norm of a tower's mean gradient; NaN or infinity tells whose it was."""
    with tf.device(device):  # Where the gradients are.
        norm = global_norm(tower.gradients, tower.weight.dtype)
        return norm * tf.math.reciprocal_no_nan(tower.weight)


def report_unconnected(paths: Sequence[str], connected: Sequence[Any]) -> None:
    """Warns of variables on which the loss does not depend; it must depend on some."""
    if not connected:
        raise ValueError(
            "The loss depends on none of the trainable variables, so that there is nothing to "
            f"update. Received {', '.join(paths)}; does the tower function use this model, and "
            "only operations that have a gradient?"
        )
    if paths:
        warnings.warn(
            f"The loss does not depend on {', '.join(paths)}: they stay as they are.",
            stacklevel=2,
        )

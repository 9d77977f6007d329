"""One tower: the forward and backward pass over one shard, on values read once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from towers.loop.inputs import Batch, Shard, split_batch
from towers.run.determinism import sums_stay_nested
from towers.step.gradients import (
    Gradient,
    first_half,
    scale_gradients,
    sum_gradients,
    sum_repeated_rows,
)
from towers.step.parameters import SharedVariables, TowerScope, no_new_variables
from towers.step.states import add_states, weigh_state

RESERVED_METRICS = (
    "loss", "examples", "gradient_norm", "examples_per_second", "input_wait", "learning_rate",
    "staleness",
)  # fmt: skip
# A metric is a sum over the examples, divided by the weight, or a pair (sum, its own weight).
Metrics = dict[str, Any]
State = Any  # Any nest of tensors whose first dimension counts the rows of a batch.
TowerFn = Callable[..., tuple]  # (batch) -> (loss_sum, weight, metrics), as a user writes it.
ShardFn = Callable[  # The same as `run_tower` calls it, see `towers.carried.with_state`.
    [tuple[Batch, State]], tuple[tuple[tf.Tensor, tf.Tensor, Metrics], State]
]


class TowerSums(NamedTuple):
    """What a tower hands back: sums over its shard, nothing divided yet.

    Attributes:
        loss: scalar, summed over the examples (or tokens).
        weight: scalar of the loss's dtype, how many there were.
        metrics: by name, a pair of scalars (sum, weight).
        gradients: one per trainable variable, of the summed loss; None without connection.
        states: for each non-trainable variable that was assigned, the value times the weight;
            None for the others.
        carried: the state to carry into the next step, a row for each of the shard.
    """

    loss: tf.Tensor
    weight: tf.Tensor
    metrics: dict[str, tuple[tf.Tensor, tf.Tensor]]
    gradients: list[Gradient]
    states: list[tf.Tensor | None]
    carried: State


def run_tower(
    shard_fn: ShardFn,
    shared: SharedVariables,
    values: dict[int, Any],
    shard: Shard,
    *,
    tower: int,
    seeds: Sequence[tf.Tensor],
    loss_scale: tf.Tensor | None = None,
    compiled: bool = False,
) -> TowerSums:
    """Returns the sums over one shard, which is cut into as many micro-batches as there are seeds.

    Args:
        shard_fn: the tower function, of the pair (batch, state).
        shared: the variables.
        values: theirs, read once each on the current device.
        shard: the tower's shard, whose batch is such a pair.
        tower: the tower's number.
        seeds: for each micro-batch, int64 [2], what its random numbers are derived from.
        loss_scale: float32 scalar that the mean loss is multiplied with while gradients are
            taken, or None.
        compiled: whether XLA compiles the pass.
    """

    def run(values: dict[int, tf.Tensor], shard: Shard, seed: tf.Tensor) -> TowerSums:
        return differentiate(shard_fn, shared, values, shard, tower, seed, loss_scale)

    run = tf.function(run, autograph=False, jit_compile=True) if compiled else run

    def run_all(parts: Sequence[tuple[Shard, tf.Tensor]]) -> TowerSums:
        if len(parts) == 1:
            ((micro_batch, seed),) = parts
            return finish_part(run(values, micro_batch, seed), micro_batch.size)
        # A running sum needs the least memory; that in pairs is the same on any number of towers.
        begin = first_half(len(parts)) if sums_stay_nested() else len(parts) - 1
        first = run_all(parts[:begin])
        # One after the other, so that only one micro-batch's activations are alive.
        with tf.control_dependencies(tensors_of(first)):
            return add_sums(first, run_all(parts[begin:]))

    return run_all(list(zip(micro_batches(shard, len(seeds)), seeds, strict=True)))


def finish_part(sums: TowerSums, size: tf.Tensor) -> TowerSums:
    """Returns a micro-batch's sums with each row of a sparse gradient and of the state once."""
    return sums._replace(
        gradients=list(map(sum_repeated_rows, sums.gradients)),
        carried=tf.nest.map_structure(lambda rows: rows[:size], sums.carried),
    )


def tensors_of(sums: TowerSums) -> list[tf.Tensor]:
    """Returns every tensor in the sums."""
    parts = tf.nest.flatten(sums, expand_composites=True)
    return [part for part in parts if part is not None]


def micro_batches(shard: Shard, count: int) -> tuple[Shard, ...]:
    """Returns the shard cut into micro-batches; all of an empty shard's are empty."""
    if count == 1:
        return (shard,)
    parts = split_batch(shard.batch, count)
    return tuple(part._replace(size=tf.minimum(part.size, shard.size)) for part in parts)


def differentiate(
    shard_fn: ShardFn,
    shared: SharedVariables,
    values: dict[int, tf.Tensor],
    shard: Shard,
    tower: int,
    seed: tf.Tensor,
    loss_scale: tf.Tensor | None,
) -> TowerSums:
    """Returns the sums over one micro-batch, and the gradients of its summed loss."""
    sources = shared.sources(values)
    with tf.GradientTape(watch_accessed_variables=False) as tape:
        tape.watch(sources)
        sums = forward(shard_fn, shared, values, shard, tower=tower, seed=seed)
        factor = gradient_factor(sums.weight, loss_scale)
        scaled_loss = sums.loss * factor
    gradients = tape.gradient(scaled_loss, sources)
    if loss_scale is not None:
        gradients = scale_gradients(gradients, 1 / factor)
    return sums._replace(gradients=gradients)


def gradient_factor(weight: tf.Tensor, loss_scale: tf.Tensor | None) -> tf.Tensor:
    """Returns what to multiply the summed loss with before the backward pass.

    The loss scale is meant for a mean loss; float16 gradients of a sum over a thousand tokens
    overflow a thousand times sooner.
    """
    if loss_scale is None:
        return tf.ones_like(weight)
    return tf.cast(loss_scale, weight.dtype) / tf.where(weight > 0, weight, 1)


def forward(
    shard_fn: ShardFn,
    shared: SharedVariables,
    values: dict[int, tf.Tensor],
    shard: Shard,
    *,
    tower: int,
    seed: tf.Tensor,
) -> TowerSums:
    """Returns the sums over one micro-batch without gradients; an empty shard's are zero."""
    name = f"Tower {tower}"
    seeds = seed_states(seed, len(shared.seeds))
    with TowerScope(name, shared, values, seeds) as scope, no_new_variables(name):
        (loss, weight, metrics), carried = shard_fn(shard.batch)
    counts = tf.cast(shard.size > 0, loss.dtype)
    weight = tf.cast(weight, loss.dtype) * counts
    for variable in shared.trainable:
        if scope.updated(variable) is not None:
            raise RuntimeError(
                f"{name} assigns the trainable variable '{variable.path}'. A tower changes "
                "trainable variables through gradients only; make it `trainable=False`."
            )
    return TowerSums(
        loss=loss * counts,
        weight=weight,
        metrics={key: metric_sums(value, weight, counts) for key, value in metrics.items()},
        gradients=[],
        states=[weigh_state(scope.updated(state), weight) for state in shared.states],
        carried=carried,
    )


def seed_states(seed: tf.Tensor, num_generators: int) -> list[tf.Tensor]:
    """Returns a state for each seed generator, int64 [2], all different.

    A generator adds one to the second number at each draw, so that the first must differ: else
    the second draw of one generator is the first of the next.
    """
    return [fold_in(fold_in(seed, generator), 0) for generator in range(num_generators)]


def fold_in(seed: tf.Tensor, number: int | tf.Tensor) -> tf.Tensor:
    """Returns another seed, int64 [2], that is a function of a seed and a number."""
    return tf.random.experimental.stateless_fold_in(seed, tf.cast(number, tf.int64))


def part_seed(seed: int, step: tf.Tensor, part: int) -> tf.Tensor:
    """Returns the seed of one part of a batch, int64 [2]: of a micro-batch of a tower.

    Parts count on over the towers, so that a part is the same whoever runs it.
    """
    return fold_in(fold_in(tf.constant([seed, 0], tf.int64), step), part)


def check_results(results: Any) -> tuple[tf.Tensor, tf.Tensor, Metrics]:
    """Returns what a tower function returned, as tensors; raises ValueError if it is not right."""
    if not isinstance(results, tuple) or len(results) != 3 or not isinstance(results[2], dict):
        raise ValueError(
            "A tower function returns (loss_sum, weight, metrics): two scalars and a dict of "
            f"scalars. Received {results!r}."
        )
    loss, weight, metrics = results
    loss, weight = tf.convert_to_tensor(loss), tf.convert_to_tensor(weight)
    if loss.shape.rank != 0 or weight.shape.rank != 0 or not loss.dtype.is_floating:
        raise ValueError(
            "A tower function returns the loss summed over the shard, a floating-point scalar, "
            f"and its weight, a scalar. Received a loss of shape {loss.shape} and "
            f"{loss.dtype.name}, and a weight of shape {weight.shape}; "
            "use tf.reduce_sum, not the mean."
        )
    for name, value in metrics.items():
        check_metric(name, value)
    if loss.dtype in (tf.float16, tf.bfloat16):
        loss = tf.cast(loss, tf.float32)
    return loss, weight, metrics


def check_metric(name: str, value: Any) -> None:
    """Raises ValueError unless a metric is a scalar or a pair (sum, weight), with a free name."""
    if name in RESERVED_METRICS:
        raise ValueError(
            f"The engine reports {', '.join(RESERVED_METRICS)} by itself. Received a "
            f"metric {name!r}; call it something else."
        )
    parts = value if isinstance(value, tuple) else (value,)
    shapes = [tuple(tf.convert_to_tensor(part).shape) for part in parts]
    is_pair = isinstance(value, tuple)
    if len(parts) != 1 + is_pair or any(shape != () for shape in shapes):
        raise ValueError(
            "A metric is a sum over the shard, a scalar, or a pair of scalars (sum, weight). "
            f"Received {name!r} with shapes {shapes}; use tf.reduce_sum, not the mean."
        )


def metric_sums(value: Any, weight: tf.Tensor, counts: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns a metric as (sum, weight) of the loss's dtype, zero for an empty shard."""
    if not isinstance(value, tuple):
        return tf.cast(value, weight.dtype) * counts, weight
    total, own_weight = value
    return tf.cast(total, weight.dtype) * counts, tf.cast(own_weight, weight.dtype) * counts


def add_sums(first: TowerSums, second: TowerSums) -> TowerSums:
    """Returns the sums over both micro-batches (or shards)."""
    return TowerSums(
        loss=first.loss + second.loss,
        weight=first.weight + second.weight,
        metrics=tf.nest.map_structure(tf.add, first.metrics, second.metrics),
        gradients=sum_gradients([first.gradients, second.gradients]),
        states=list(map(add_states, first.states, second.states)),
        carried=tf.nest.map_structure(
            lambda *rows: tf.concat(rows, axis=0), first.carried, second.carried
        ),
    )

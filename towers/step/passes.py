"""The forward and backward pass over one shard, micro-batch by micro-batch, on values read once."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from towers.batches.shards import Shard
from towers.devices.determinism import sums_stay_nested
from towers.step.micro_batches import MicroBatches, sum_one_by_one
from towers.step.parts import Part, Parts, seed_states
from towers.step.program import TowerProgram
from towers.step.states import share_of_state
from towers.step.sums import (
    Denominators,
    TowerSums,
    add_sums,
    count_once,
    finish_micro_batch,
    fold_losses,
    metric_sums,
)
from towers.step.tower_function import ShardFn
from towers.travel.gradients import Gradient, add_gradients, scale_gradients
from towers.travel.pairs import add_in_pairs
from towers.variables.shared_variables import SharedVariables
from towers.variables.tower_scope import TowerScope, no_new_variables


def run_tower(
    program: TowerProgram,
    values: dict[int, Any],
    shard: Shard,
    parts: Parts,
    *,
    loss_scale: tf.Tensor | None = None,
    compiled: bool = False,
    totals: Denominators | None = None,
) -> TowerSums:
    """Returns the sums over one shard, cut into one micro-batch per part.

    Args:
        program: the tower function on the pair (batch, state), and its variables.
        values: the variables' values, each read once on the current device.
        shard: the tower's shard; its batch is a pair (batch, state).
        parts: the parts of the global batch that the shard consists of.
        loss_scale: float32 scalar by which the mean loss is multiplied for the backward pass, or
            None.
        compiled: whether XLA compiles the pass.
        totals: what several losses are divided by; None for one loss.
    """
    shard_fn, shared = program.shard_fn, program.shared

    def run(values: dict[int, tf.Tensor], shard: Shard, part: Part) -> TowerSums:
        return differentiate(shard_fn, shared, values, shard, part, loss_scale, totals)

    run = compile_with_xla(run) if compiled else run
    micro_batches, in_loop = MicroBatches(shard, parts.num_parts), parts.in_loop

    def run_part(index: Any) -> TowerSums:
        inner = values if isinstance(index, int) else within_loop(values)
        micro_batch = micro_batches[index]
        return finish_micro_batch(run(inner, micro_batch, parts.at(index)), micro_batch.size)

    # A running sum needs the least memory; a sum in pairs has the same bits on any number of
    # towers.
    in_pairs = sums_stay_nested()
    return sum_one_by_one(run_part, parts.num_parts, add_sums, in_pairs=in_pairs, in_loop=in_loop)


def within_loop(values: dict[int, Any]) -> dict[int, Any]:
    """Returns the values as tensors of a loop's body, which can be sources of gradients there."""
    return {
        key: tf.identity(value) if isinstance(value, tf.Tensor) else value
        for key, value in values.items()
    }


def compile_with_xla(run: Callable[..., Any]) -> Callable[..., Any]:
    """Returns the function as one that XLA compiles."""
    return tf.function(run, autograph=False, jit_compile=True)


def differentiate(
    shard_fn: ShardFn,
    shared: SharedVariables,
    values: dict[int, tf.Tensor],
    shard: Shard,
    part: Part,
    loss_scale: tf.Tensor | None,
    totals: Denominators | None,
) -> TowerSums:
    """Returns the sums over one micro-batch, and the gradients of its summed loss."""
    sources = shared.sources(values)
    with tf.GradientTape(watch_accessed_variables=False) as tape:
        tape.watch(sources)
        scope = scope_of(shared, values, shard, part, tape)
        sums = fold_losses(forward(shard_fn, shard, part, scope), totals)
        factor = gradient_factor(sums.weight, loss_scale)
        scaled_loss = sums.loss * factor
    if part.replica is not None and loss_scale is not None:
        part.replica.factor = factor
    gradients = gradients_of(tape, scaled_loss, sources, scope)
    if loss_scale is not None:
        gradients = scale_gradients(gradients, 1 / factor)
    return sums._replace(gradients=gradients)


def forward(
    shard_fn: ShardFn,
    shard: Shard,
    part: Part,
    scope: TowerScope,
) -> TowerSums:
    """Returns the sums over one micro-batch without gradients; zeros for an empty shard.

    Several losses are not folded into one yet.
    """
    shared = scope.shared
    if part.replica is not None:
        part.replica.begin(shard.size)
    with scope, no_new_variables(f"Tower {part.tower}"):
        (loss, weight, metrics), carried = shard_fn(shard.batch)
    losses = loss if isinstance(loss, tuple) else (loss,)
    nonempty = tf.cast(shard.size > 0, losses[0].dtype)  # 1, or 0 for an empty shard.
    weight = count_once(weight, nonempty, shard.size)
    count = weight.rows if isinstance(weight, Denominators) else weight
    return TowerSums(
        loss=tf.nest.map_structure(lambda one: one * nonempty, loss),
        weight=weight,
        metrics={key: metric_sums(value, count, nonempty) for key, value in metrics.items()},
        gradients=[],
        states=[
            share_of_state(state, scope.updated(state), scope.before(state), part, count, nonempty)
            for state in shared.states
        ],
        carried=carried,
        assigned=list(map(scope.updated, shared.trainable)),
    )


def scope_of(
    shared: SharedVariables,
    values: dict[int, Any],
    shard: Shard,
    part: Part,
    tape: tf.GradientTape | None = None,
) -> TowerScope:
    """Returns the scope of a tower function for one micro-batch."""
    seeds = seed_states(part.seed, len(shared.seeds))
    mapping = {**values, **dict(zip(map(id, shared.seeds), seeds, strict=True))}
    inputs = [*tf.nest.flatten(shard), *seeds]
    return TowerScope(f"Tower {part.tower}", shared, mapping, inputs, tape)


def gradients_of(
    tape: tf.GradientTape, loss: tf.Tensor, sources: Sequence[Any], scope: TowerScope
) -> list[Gradient]:
    """Returns the gradients of the trainable variables, whose values are the sources."""
    shared = scope.shared
    versions = [scope.versions.get(id(variable), []) for variable in shared.trainable]
    # TensorFlow calls the functions that capture variables again.
    with scope.replay() if shared.captured else contextlib.nullcontext():
        found, of_versions = tape.gradient(loss, (list(sources), versions))
    pairs = zip(found, of_versions, strict=True)
    return [add_in_pairs(add_gradients, [first, *others]) for first, others in pairs]


def gradient_factor(weight: tf.Tensor, loss_scale: tf.Tensor | None) -> tf.Tensor:
    """Returns the factor for the summed loss in the backward pass, a scalar.

    The loss scale applies to the mean loss: float16 gradients of a loss summed over a thousand
    tokens overflow at a scale a thousand times smaller.
    """
    if loss_scale is None:
        return tf.ones_like(weight)
    return tf.cast(loss_scale, weight.dtype) / tf.where(weight > 0, weight, 1)

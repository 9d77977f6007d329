"""The forward and backward pass over one micro-batch, on values that the tower has read once."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from towers.batches.shards import Shard
from towers.step.parts import Part, seed_states
from towers.step.program import TowerProgram
from towers.step.states import share_of_state
from towers.step.sums import Denominators, TowerSums, count_once, fold_losses, metric_sums
from towers.travel.gradients import Gradient, add_gradients, scale_gradients
from towers.travel.pairs import add_in_pairs
from towers.variables.shared_variables import SharedVariables
from towers.variables.tower_scope import TowerScope, no_new_variables

Values = dict[int, Any]  # What a tower has read, by the variable's id.


def differentiate(
    program: TowerProgram,
    values: Values,
    shard: Shard,
    part: Part,
    loss_scale: tf.Tensor | None,
    totals: Denominators | None,
) -> TowerSums:
    """Returns the sums over one micro-batch, and the gradients of its summed loss.

    Args:
        program: the tower function on the pair (batch, state), and its variables.
        values: the variables' values, each read once on the current device.
        shard: the micro-batch; its batch is a pair (batch, state).
        part: the micro-batch as a part of the global batch.
        loss_scale: float32 scalar by which the mean loss is multiplied for the backward pass, or
            None.
        totals: what several losses are divided by; None for one loss.
    """
    sources = program.shared.sources(values)
    with tf.GradientTape(watch_accessed_variables=False) as tape:
        tape.watch(sources)
        sums, scope = forward(program, values, shard, part, tape)
        sums = fold_losses(sums, totals)
        factor = gradient_factor(sums.weight, loss_scale)
        scaled_loss = sums.loss * factor
    if part.replica is not None and loss_scale is not None:
        part.replica.factor = factor
    gradients = gradients_of(tape, scaled_loss, sources, scope)
    if loss_scale is not None:
        gradients = scale_gradients(gradients, 1 / factor)
    return sums._replace(gradients=gradients)


def forward(
    program: TowerProgram,
    values: Values,
    shard: Shard,
    part: Part,
    tape: tf.GradientTape | None = None,
) -> tuple[TowerSums, TowerScope]:
    """Returns the sums over one micro-batch without gradients, and the scope in which it ran.

    The sums of an empty shard are zeros. Several losses are not folded into one yet. Arguments are
    as in `differentiate`; the tape is the one that records, or None.
    """
    scope = scope_of(program.shared, values, shard, part, tape)
    if part.replica is not None:
        part.replica.begin(shard.size)
    with scope, no_new_variables(f"Tower {part.tower}"):
        (loss, weight, metrics), carried = program.shard_fn(shard.batch)
    losses = loss if isinstance(loss, tuple) else (loss,)
    nonempty = tf.cast(shard.size > 0, losses[0].dtype)  # 1, or 0 for an empty shard.
    weight = count_once(weight, nonempty, shard.size)
    count = weight.rows if isinstance(weight, Denominators) else weight
    sums = TowerSums(
        loss=tf.nest.map_structure(lambda one: one * nonempty, loss),
        weight=weight,
        metrics={key: metric_sums(value, count, nonempty) for key, value in metrics.items()},
        gradients=[],
        states=[
            share_of_state(state, scope.updated(state), scope.before(state), part, count, nonempty)
            for state in program.shared.states
        ],
        carried=carried,
        assigned=list(map(scope.updated, program.shared.trainable)),
    )
    return sums, scope


def scope_of(
    shared: SharedVariables,
    values: Values,
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

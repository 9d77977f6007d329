"""One tower: the forward and backward pass over one shard, on values read once."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import keras
import tensorflow as tf

from towers.run.determinism import sums_stay_nested
from towers.step.gradients import first_half, scale_gradients
from towers.step.options import StepOptions
from towers.step.parameters import SharedVariables, TowerScope, no_new_variables
from towers.step.program import TowerProgram
from towers.step.seeds import part_seed, seed_states
from towers.step.shards import Shard, split_batch
from towers.step.states import weigh_state
from towers.step.sums import TowerSums, add_sums, finish_part, metric_sums, tensors_of
from towers.step.tower_function import ShardFn


class Tower:
    """One tower as a callable, `(shard, step) -> TowerSums`, on its own device.

    Args:
        program: what every tower runs.
        variables: the copy of the shared variables that it reads, in their order.
        device: where it runs.
        index: which of this process's towers it is, from 0.
        options: of the step.
        first_tower: the number, among the towers of all processes, of this process's first.

    Attributes:
        device: as given.
        number: the tower's number among the towers of all processes.
    """

    def __init__(
        self,
        program: TowerProgram,
        variables: Sequence[keras.Variable],
        device: str,
        index: int,
        options: StepOptions = StepOptions(),
        first_tower: int = 0,
    ):
        self.device = device
        self.number = first_tower + index
        self._program = program
        self._variables = variables
        self._index = index
        self._options = options

    def __call__(self, shard: Shard, step: tf.Tensor) -> TowerSums:
        """Returns the sums over a shard in the step of this number, an int64 scalar."""
        with self.scope():
            return self.run(self.read(), shard, step)

    @contextlib.contextmanager
    def scope(self) -> Iterator[None]:
        """The tower's device and its name scope."""
        with tf.device(self.device), tf.name_scope(f"tower_{self._index}"):
            yield

    def read(self) -> dict[int, Any]:
        """Returns the values of all variables, by the variable's id, each read once."""
        with tf.name_scope("parameters"):
            return self._program.shared.read(self._variables)

    def run(
        self,
        values: dict[int, Any],
        shard: Shard,
        step: tf.Tensor,
        *,
        first_part: int | None = None,
    ) -> TowerSums:
        """Returns the sums over a shard, with gradients.

        Args:
            values: of the variables, as `read` returns them.
            shard: the shard.
            step: the step's number, an int64 scalar.
            first_part: the number of the shard's first micro-batch among those of the batch, of
                which random numbers are a function; by default what follows from the tower's.
        """
        options, program = self._options, self._program
        if first_part is None:
            first_part = self.number * options.accumulate
        parts = range(first_part, first_part + options.accumulate)
        return run_tower(
            program.shard_fn,
            program.shared,
            values,
            program.carried.attach(self._index, shard),
            tower=self.number,
            seeds=[part_seed(options.seed, step, part) for part in parts],
            loss_scale=None if options.loss_scale is None else options.loss_scale.read(),
            compiled=options.compiled,
        )

    def evaluate(self, shard: Shard) -> TowerSums:
        """Returns the sums over a shard without gradients."""
        program = self._program
        with self.scope():
            seed = part_seed(0, tf.zeros([], tf.int64), self.number)
            values, shard = self.read(), program.carried.attach(self._index, shard)
            return forward(
                program.shard_fn, program.shared, values, shard, tower=self.number, seed=seed
            )


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

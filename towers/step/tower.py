"""One tower: the forward and backward pass over one shard, on values read once."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import keras
import tensorflow as tf

from towers.run.determinism import sums_stay_nested
from towers.step.gradients import add_in_pairs, first_half, scale_gradients
from towers.step.options import StepOptions
from towers.step.parameters import SharedVariables, TowerScope, no_new_variables
from towers.step.program import TowerProgram
from towers.step.seeds import micro_batch_seed, seed_states
from towers.step.shards import Shard, split_batch
from towers.step.states import weigh_state
from towers.step.sums import (
    Denominators,
    TowerSums,
    add_nests,
    add_sums,
    count_once,
    finish_micro_batch,
    fold_losses,
    metric_sums,
    tensors_of,
)
from towers.step.tower_function import ShardFn


class Tower:
    """One tower as a callable, `(shard, step) -> TowerSums`, on its own device.

    Args:
        program: the program that every tower runs.
        variables: the copy of the shared variables that this tower reads, in the order of
            `SharedVariables.all`.
        device: the tower's device.
        index: the tower's index in this process, from 0.
        options: the step's options.
        first_tower: the number of this process's first tower among the towers of all processes.

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

    def __call__(
        self, shard: Shard, step: tf.Tensor, totals: Denominators | None = None
    ) -> TowerSums:
        """Returns the sums over a shard; arguments as in `run`."""
        with self.scope():
            return self.run(self.read(), shard, step, totals=totals)

    @property
    def needs_denominators(self) -> bool:
        """Whether `run` needs the denominators of the whole batch."""
        return self._program.shard_fn.needs_denominators

    @contextlib.contextmanager
    def scope(self) -> Iterator[None]:
        """The scope of the tower's device and of its name."""
        with tf.device(self.device), tf.name_scope(f"tower_{self._index}"):
            yield

    def read(self) -> dict[int, Any]:
        """Returns the variables' values by the variable's id, each read once."""
        with tf.name_scope("parameters"):
            return self._program.shared.read(self._variables)

    def run(
        self,
        values: dict[int, Any],
        shard: Shard,
        step: tf.Tensor,
        *,
        totals: Denominators | None = None,
        first_micro_batch: int | None = None,
    ) -> TowerSums:
        """Returns the sums over a shard, with gradients.

        Args:
            values: the variables' values, as `read` returns them.
            shard: the shard.
            step: the step's number, an int64 scalar.
            totals: what several losses are divided by, summed over the whole batch; None for one.
            first_micro_batch: the number of the shard's first micro-batch within the global batch;
                random numbers derive from it. By default it follows from the tower's number.
        """
        options = self._options
        return run_tower(
            self._program,
            values,
            self._program.carried.attach(self._index, shard),
            tower=self.number,
            seeds=self._seeds(step, first_micro_batch),
            loss_scale=None if options.loss_scale is None else options.loss_scale.read(),
            compiled=options.compiled,
            totals=totals,
        )

    def weigh(
        self, shard: Shard, step: tf.Tensor, *, first_micro_batch: int | None = None
    ) -> Denominators:
        """Returns the denominators of several losses over a shard; arguments as in `run`.

        It calls the tower function for its weights alone. TensorFlow leaves out what they do not
        need: for weights that follow from the batch, such as masks, that is the whole model.
        """
        program, seeds = self._program, self._seeds(step, first_micro_batch)
        with tf.device(self.device), tf.name_scope(f"denominators_{self._index}"):
            values, shard = self.read(), program.carried.attach(self._index, shard)

            def run(values: dict[int, tf.Tensor], shard: Shard, seed: tf.Tensor) -> Denominators:
                shard_fn, shared = program.shard_fn, program.shared
                sums = forward(shard_fn, shared, values, shard, tower=self.number, seed=seed)
                return sums.weight

            run = compile_with_xla(run) if self._options.compiled else run
            parts = zip(micro_batches(shard, len(seeds)), seeds, strict=True)
            return add_in_pairs(add_nests, [run(values, *part) for part in parts])

    def _seeds(self, step: tf.Tensor, first_micro_batch: int | None) -> list[tf.Tensor]:
        """Returns the seed of each micro-batch; arguments as in `run`."""
        accumulate = self._options.accumulate
        first = self.number * accumulate if first_micro_batch is None else first_micro_batch
        numbers = range(first, first + accumulate)
        return [micro_batch_seed(self._options.seed, step, number) for number in numbers]

    def evaluate(self, shard: Shard, batch_number: tf.Tensor) -> TowerSums:
        """Returns the sums over a shard without gradients.

        Args:
            shard: the shard.
            batch_number: the batch's number, an int64 scalar; random numbers derive from it.
        """
        program = self._program
        with self.scope():
            seed = micro_batch_seed(self._options.seed, batch_number, self.number)
            values, shard = self.read(), program.carried.attach(self._index, shard)
            return forward(
                program.shard_fn, program.shared, values, shard, tower=self.number, seed=seed
            )


def run_tower(
    program: TowerProgram,
    values: dict[int, Any],
    shard: Shard,
    *,
    tower: int,
    seeds: Sequence[tf.Tensor],
    loss_scale: tf.Tensor | None = None,
    compiled: bool = False,
    totals: Denominators | None = None,
) -> TowerSums:
    """Returns the sums over one shard, cut into one micro-batch per seed.

    Args:
        program: the tower function on the pair (batch, state), and its variables.
        values: the variables' values, each read once on the current device.
        shard: the tower's shard; its batch is a pair (batch, state).
        tower: the tower's number.
        seeds: for each micro-batch, int64 [2], the seed of its random numbers.
        loss_scale: float32 scalar by which the mean loss is multiplied for the backward pass, or
            None.
        compiled: whether XLA compiles the pass.
        totals: what several losses are divided by; None for one loss.
    """
    shard_fn, shared = program.shard_fn, program.shared

    def run(values: dict[int, tf.Tensor], shard: Shard, seed: tf.Tensor) -> TowerSums:
        return differentiate(shard_fn, shared, values, shard, tower, seed, loss_scale, totals)

    run = compile_with_xla(run) if compiled else run

    def run_all(pairs: Sequence[tuple[Shard, tf.Tensor]]) -> TowerSums:
        if len(pairs) == 1:
            ((micro_batch, seed),) = pairs
            return finish_micro_batch(run(values, micro_batch, seed), micro_batch.size)
        # A running sum needs the least memory; a sum in pairs has the same bits on any number of
        # towers.
        middle = first_half(len(pairs)) if sums_stay_nested() else len(pairs) - 1
        first = run_all(pairs[:middle])
        # One after the other: only one micro-batch's activations are in memory at a time.
        with tf.control_dependencies(tensors_of(first)):
            return add_sums(first, run_all(pairs[middle:]))

    return run_all(list(zip(micro_batches(shard, len(seeds)), seeds, strict=True)))


def compile_with_xla(run: Callable[..., Any]) -> Callable[..., Any]:
    """Returns the function as one that XLA compiles."""
    return tf.function(run, autograph=False, jit_compile=True)


def micro_batches(shard: Shard, count: int) -> tuple[Shard, ...]:
    """Returns the shard cut into micro-batches; those of an empty shard are all empty."""
    if count == 1:
        return (shard,)
    cut = split_batch(shard.batch, count)
    return tuple(part._replace(size=tf.minimum(part.size, shard.size)) for part in cut)


def differentiate(
    shard_fn: ShardFn,
    shared: SharedVariables,
    values: dict[int, tf.Tensor],
    shard: Shard,
    tower: int,
    seed: tf.Tensor,
    loss_scale: tf.Tensor | None,
    totals: Denominators | None,
) -> TowerSums:
    """Returns the sums over one micro-batch, and the gradients of its summed loss."""
    sources = shared.sources(values)
    with tf.GradientTape(watch_accessed_variables=False) as tape:
        tape.watch(sources)
        sums = forward(shard_fn, shared, values, shard, tower=tower, seed=seed)
        sums = fold_losses(sums, totals)
        factor = gradient_factor(sums.weight, loss_scale)
        scaled_loss = sums.loss * factor
    gradients = tape.gradient(scaled_loss, sources)
    if loss_scale is not None:
        gradients = scale_gradients(gradients, 1 / factor)
    return sums._replace(gradients=gradients)


def forward(
    shard_fn: ShardFn,
    shared: SharedVariables,
    values: dict[int, tf.Tensor],
    shard: Shard,
    *,
    tower: int,
    seed: tf.Tensor,
) -> TowerSums:
    """Returns the sums over one micro-batch without gradients; zeros for an empty shard.

    Several losses are not folded into one yet.
    """
    name = f"Tower {tower}"
    seeds = seed_states(seed, len(shared.seeds))
    with TowerScope(name, shared, values, seeds) as scope, no_new_variables(name):
        (loss, weight, metrics), carried = shard_fn(shard.batch)
    losses = loss if isinstance(loss, tuple) else (loss,)
    nonempty = tf.cast(shard.size > 0, losses[0].dtype)  # 1, or 0 for an empty shard.
    weight = count_once(weight, nonempty, shard.size)
    count = weight.rows if isinstance(weight, Denominators) else weight
    for variable in shared.trainable:
        if scope.updated(variable) is not None:
            raise RuntimeError(
                f"{name} assigns the trainable variable '{variable.path}'. A tower changes "
                "trainable variables through gradients only; make it `trainable=False`."
            )
    return TowerSums(
        loss=tf.nest.map_structure(lambda one: one * nonempty, loss),
        weight=weight,
        metrics={key: metric_sums(value, count, nonempty) for key, value in metrics.items()},
        gradients=[],
        states=[weigh_state(scope.updated(state), count) for state in shared.states],
        carried=carried,
    )


def gradient_factor(weight: tf.Tensor, loss_scale: tf.Tensor | None) -> tf.Tensor:
    """Returns the factor for the summed loss in the backward pass, a scalar.

    The loss scale applies to the mean loss: float16 gradients of a loss summed over a thousand
    tokens overflow at a scale a thousand times smaller.
    """
    if loss_scale is None:
        return tf.ones_like(weight)
    return tf.cast(loss_scale, weight.dtype) / tf.where(weight > 0, weight, 1)

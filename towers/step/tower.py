"""One tower: the forward and backward pass over one shard, on values read once."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import keras
import tensorflow as tf

from towers.run.determinism import sums_stay_nested
from towers.step.connections import check_gradients
from towers.step.gradients import Gradient, add_gradients, add_in_pairs, first_half, scale_gradients
from towers.step.options import StepOptions
from towers.step.parameters import SharedVariables
from towers.step.parts import Part, part_of
from towers.step.program import TowerProgram
from towers.step.scope import TowerScope, no_new_variables
from towers.step.seeds import seed_states
from towers.step.shards import Shard, split_batch
from towers.step.states import share_of_state
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
from towers.step.synchronized import no_sums_over_replicas
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
        alone: bool = False,
    ) -> TowerSums:
        """Returns the sums over a shard, with gradients.

        Args:
            values: the variables' values, as `read` returns them.
            shard: the shard.
            step: the step's number, an int64 scalar.
            totals: what several losses are divided by, summed over the whole batch; None for one.
            first_micro_batch: the number of the shard's first micro-batch within the global batch;
                random numbers derive from it. By default it follows from the tower's number.
            alone: whether the tower's states are merged with those of no other tower.
        """
        options, program = self._options, self._program
        shard = program.carried.attach(self._index, shard)
        with no_sums_over_replicas(program.num_parts):
            sums = run_tower(
                program,
                values,
                shard,
                self._parts(step, first_micro_batch, alone=alone),
                loss_scale=None if options.loss_scale is None else options.loss_scale.read(),
                compiled=options.compiled,
                totals=totals,
            )
        if alone:
            check_assigned_by_none(program.shared, sums)
        if self._index == 0:
            specs = tf.nest.map_structure(tf.type_spec_from_value, shard.batch)
            check_gradients(program.shard_fn, program.shared, specs, sums.gradients)
        return sums

    def weigh(
        self, shard: Shard, step: tf.Tensor, *, first_micro_batch: int | None = None
    ) -> Denominators:
        """Returns the denominators of several losses over a shard; arguments as in `run`.

        It calls the tower function for its weights alone. TensorFlow leaves out what they do not
        need: for weights that follow from the batch, such as masks, that is the whole model.
        """
        program, parts = self._program, self._parts(step, first_micro_batch)
        with tf.device(self.device), tf.name_scope(f"denominators_{self._index}"):
            values, shard = self.read(), program.carried.attach(self._index, shard)

            def run(values: dict[int, tf.Tensor], shard: Shard, part: Part) -> Denominators:
                scope = scope_of(program.shared, values, shard, part)
                return forward(program.shard_fn, shard, part, scope).weight

            run = compile_with_xla(run) if self._options.compiled else run
            pairs = zip(micro_batches(shard, len(parts)), parts, strict=True)
            return add_in_pairs(add_nests, [run(values, *pair) for pair in pairs])

    def _parts(
        self, step: tf.Tensor, first_micro_batch: int | None, *, alone: bool = False
    ) -> list[Part]:
        """Returns the tower's parts of the global batch; arguments as in `run`."""
        options, first = self._options, first_micro_batch
        if first is None:
            first = self.number * options.accumulate
        numbers = range(first, first + options.accumulate)
        parts = [part_of(self.number, number, options.seed, step) for number in numbers]
        if alone:
            return [parts[0]._replace(is_first=tf.constant(True)), *parts[1:]]
        gives_averages = options.batch_norm == "mean" or first == 0
        return [part._replace(gives_averages=gives_averages) for part in parts]

    def evaluate(self, shard: Shard, batch_number: tf.Tensor) -> TowerSums:
        """Returns the sums over a shard without gradients.

        Args:
            shard: the shard.
            batch_number: the batch's number, an int64 scalar; random numbers derive from it.
        """
        program = self._program
        with self.scope():
            part = part_of(self.number, self.number, self._options.seed, batch_number)
            values, shard = self.read(), program.carried.attach(self._index, shard)
            return forward(
                program.shard_fn, shard, part, scope_of(program.shared, values, shard, part)
            )


def check_assigned_by_none(shared: SharedVariables, sums: TowerSums) -> None:
    """Raises RuntimeError for a trainable variable that a tower assigns without the others."""
    pairs = zip(shared.trainable, sums.assigned, strict=True)
    paths = [variable.path for variable, value in pairs if value is not None]
    if paths:
        raise RuntimeError(
            f"The tower function assigns the trainable variable '{paths[0]}', as "
            "SpectralNormalization does. Each tower would assign another value here; only the "
            "towers of build_train_step train it."
        )


def run_tower(
    program: TowerProgram,
    values: dict[int, Any],
    shard: Shard,
    parts: Sequence[Part],
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

    def run_all(pairs: Sequence[tuple[Shard, Part]]) -> TowerSums:
        if len(pairs) == 1:
            ((micro_batch, part),) = pairs
            return finish_micro_batch(run(values, micro_batch, part), micro_batch.size)
        # A running sum needs the least memory; a sum in pairs has the same bits on any number of
        # towers.
        middle = first_half(len(pairs)) if sums_stay_nested() else len(pairs) - 1
        first = run_all(pairs[:middle])
        # One after the other: only one micro-batch's activations are in memory at a time.
        with tf.control_dependencies(tensors_of(first)):
            return add_sums(first, run_all(pairs[middle:]))

    return run_all(list(zip(micro_batches(shard, len(parts)), parts, strict=True)))


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

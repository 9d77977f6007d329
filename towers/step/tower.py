"""One tower: the forward and backward pass over its shard, part by part, on its own device."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import keras
import tensorflow as tf

from towers.batches.shards import Shard
from towers.devices.determinism import sums_stay_nested
from towers.devices.host_placement import tower_device
from towers.devices.stages import labels
from towers.step.micro_batches import Part, micro_batches_of, part_of, seed_states, sum_one_by_one
from towers.step.sums import (
    Denominators,
    TowerSums,
    add_sums,
    finish_sums,
    fold_losses,
    sums_of,
    widen,
)
from towers.step.synchronized import Rendezvous
from towers.step.tower_function import TowerProgram
from towers.step.tracing import check_gradients
from towers.travel.gradients import Gradient, add_gradients, scale_gradients
from towers.travel.packing import Upload
from towers.travel.pairs import add_in_pairs
from towers.variables.tower_scope import OWN, TowerScope, depends_on

ALONE = Rendezvous()
Values = dict[int, Any]  # What a tower has read, by the variable's id.
RunPart = Callable[[Values, Shard, Part], TowerSums]


class Tower:
    """One tower as a callable, `(shard, step) -> TowerSums`, on its own device.

    Args:
        program: the program that every tower runs.
        variables: the copy of the shared variables that this tower reads, in the order of
            `SharedVariables.all`.
        devices: the tower's devices, one for each stage.
        index: the tower's index in this process, from 0.
        first_tower: the number of this process's first tower among the towers of all processes.
        alone: whether its batch is a whole one, and its states are merged with those of no other
            tower.

    Attributes:
        device: the first of them.
        number: the tower's number among the towers of all processes.
    """

    def __init__(
        self,
        program: TowerProgram,
        variables: Sequence[keras.Variable],
        devices: Sequence[str],
        index: int,
        first_tower: int = 0,
        *,
        alone: bool = False,
    ):
        self.devices = tuple(devices)
        self.device = self.devices[0]
        self.number = first_tower + index
        self._program = program
        self._variables = variables
        self._index = index
        self._alone = alone
        self._first_part = 0 if alone else self.number * program.options.accumulate

    def __call__(
        self,
        shard: Shard,
        step: tf.Tensor,
        totals: Denominators | None = None,
        rendezvous: Rendezvous = ALONE,
        upload: Upload | None = None,
    ) -> TowerSums:
        """Returns the sums over a shard; arguments as in `run` and `read`."""
        with self.scope():
            return self.run(self.read(upload), shard, step, totals, rendezvous)

    @property
    def needs_denominators(self) -> bool:
        """Whether `run` needs the denominators of the whole batch, also for a loss scale."""
        program = self._program
        return program.shard_fn.needs_denominators or program.options.loss_scale is not None

    @contextlib.contextmanager
    def scope(self, name: str = "tower") -> Iterator[None]:
        """The scope of the tower's device, which XLA takes as a whole, and of its name."""
        compiled = self._program.options.compiled
        device = tf.device(self.device) if compiled else tower_device(*self.devices)
        with device, tf.name_scope(f"{name}_{self._index}"):
            yield

    def read(self, upload: Upload | None = None) -> Values:
        """Returns the variables' values by the variable's id, each read once.

        Args:
            upload: the values that all towers share; None if each reads a copy of its own.
        """
        with tf.name_scope("parameters"):
            arrived = {} if upload is None else upload.values(self.device)
            return self._program.shared.read(self._variables, arrived)

    def run(
        self,
        values: Values,
        shard: Shard,
        step: tf.Tensor,
        totals: Denominators | None = None,
        rendezvous: Rendezvous = ALONE,
    ) -> TowerSums:
        """Returns the sums over a shard, with gradients.

        Args:
            values: the variables' values, as `read` returns them.
            shard: the shard.
            step: the step's number, an int64 scalar; random numbers derive from it.
            totals: what the losses are divided by, summed over the whole batch; None where that is
                done at the end.
            rendezvous: where synchronised layers sum over the towers; by default over this one.
        """
        program, loss_scale = self._program, self._program.options.loss_scale
        scale = None if loss_scale is None else loss_scale.read()

        def run(values: Values, shard: Shard, part: Part) -> TowerSums:
            return differentiate(program, values, shard, part, scale, totals)

        sums = self._sum_parts(run, values, shard, step, rendezvous)
        if self._alone:
            check_assigned_by_none(program.shared.trainable, sums)
        if self._index == 0:
            batch = tf.nest.map_structure(tf.type_spec_from_value, shard.batch)
            check_gradients(program, (batch, program.carried.shard_specs), sums.gradients)
        return sums

    def weigh(
        self, shard: Shard, step: tf.Tensor, upload: Upload | None, rendezvous: Rendezvous = ALONE
    ) -> Denominators:
        """Returns the denominators of the losses over a shard; arguments as in `__call__`.

        It calls the tower function for its weights alone. TensorFlow leaves out what they do not
        need: for weights that follow from the batch, such as masks, that is the whole model.
        """

        def run(values: Values, shard: Shard, part: Part) -> TowerSums:
            weight = forward(self._program, values, shard, part)[0].weight
            if not isinstance(weight, Denominators):
                weight = Denominators(weight, ())
            return TowerSums(loss=None, weight=weight, metrics={})

        with self.scope("denominators"):
            return self._sum_parts(run, self.read(upload), shard, step, rendezvous).weight

    def evaluate(
        self,
        shard: Shard,
        batch_number: tf.Tensor,
        rendezvous: Rendezvous = ALONE,
        upload: Upload | None = None,
    ) -> TowerSums:
        """Returns the sums over a shard without gradients; arguments as in `__call__`."""

        def run(values: Values, shard: Shard, part: Part) -> TowerSums:
            return forward(self._program, values, shard, part)[0]

        with self.scope():
            return self._sum_parts(run, self.read(upload), shard, batch_number, rendezvous)

    def _sum_parts(
        self, run: RunPart, values: Values, shard: Shard, step: tf.Tensor, rendezvous: Rendezvous
    ) -> TowerSums:
        """Returns the sum of a pass over each micro-batch of a shard, one after the other."""
        options = self._program.options
        gives_averages = options.batch_norm == "mean" or self._first_part == 0
        shard = self._program.carried.attach(self._index, shard)
        micro_batch_of = micro_batches_of(shard, options.accumulate)
        if options.compiled:
            run = tf.function(run, autograph=False, jit_compile=True)

        with rendezvous.join(compiled=options.compiled) as replica:

            def run_part(index: Any) -> TowerSums:
                inner = values if isinstance(index, int) else within_loop(values)
                micro_batch = micro_batch_of(index)
                part = part_of(
                    self.number,
                    self._first_part + index,
                    options.seed,
                    step,
                    gives_averages=gives_averages,
                    replica=replica,
                )
                return finish_sums(run(inner, micro_batch, part), micro_batch.size)

            in_loop = replica is None or not self._program.synchronized
            in_loop &= len(self.devices) == 1  # A loop would hold all its inputs on one device.
            # A running sum needs the least memory; a sum in pairs has the same bits on any number
            # of towers.
            return sum_one_by_one(
                run_part, options.accumulate, add_sums, in_pairs=sums_stay_nested(), in_loop=in_loop
            )


def within_loop(values: Values) -> Values:
    """Returns the values as tensors of a loop's body, which can be sources of gradients there."""
    return {
        key: tf.identity(value) if isinstance(value, tf.Tensor) else value
        for key, value in values.items()
    }


def check_assigned_by_none(trainable: Sequence[keras.Variable], sums: TowerSums) -> None:
    """Raises RuntimeError for a trainable variable that a tower assigns without the others."""
    for variable, value in zip(trainable, sums.assigned, strict=True):
        if value is not None:
            raise RuntimeError(
                f"The tower function assigns the trainable variable '{variable.path}', as "
                "SpectralNormalization does. Here each tower would assign a different value; use "
                "build_train_step."
            )


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
        totals: what the losses of the whole batch are divided by, for several losses or a loss
            scale.
    """
    sources = [program.shared.value(values, variable) for variable in program.shared.trainable]
    with tf.GradientTape(watch_accessed_variables=False) as tape:
        tape.watch(sources)
        sums, scope = forward(program, values, shard, part, tape)
        check_weight(program, sums.weight, sources)
        sums = fold_losses(sums, totals)
        factor = gradient_factor(totals, loss_scale)
        scaled_loss = sums.loss if factor is None else sums.loss * factor
    gradients = gradients_of(tape, scaled_loss, sources, scope)
    if factor is not None:
        gradients = scale_gradients(gradients, 1 / factor)
    return sums._replace(gradients=gradients)


def check_weight(
    program: TowerProgram, weight: tf.Tensor | Denominators, sources: Sequence[Any]
) -> None:
    """Raises ValueError for a weight with a gradient, since losses are divided by constants."""
    for one in filter(tf.is_symbolic_tensor, tf.nest.flatten(weight)):
        if one.dtype.is_floating and depends_on(one, sources):
            gradients = zip(program.shared.trainable, tf.gradients(one, sources), strict=True)
            paths = [variable.path for variable, gradient in gradients if gradient is not None]
            if paths:
                raise ValueError(
                    "Towers divide a loss by its weight as by a number without a gradient. "
                    f"Received a weight that follows from the trainable variable '{paths[0]}'; "
                    "return `tf.stop_gradient(weight)`, which is its value."
                )


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
    shared, tower = program.shared, f"Tower {part.tower}"
    seeds = seed_states(part.seed, len(shared.seeds))
    mapping = {**values, **dict(zip(map(id, shared.seeds), seeds, strict=True))}
    mapping[OWN] = part.seed, 0
    scope = TowerScope(tower, shared, mapping, [*tf.nest.flatten(shard), *seeds], tape)
    if part.replica is not None:
        part.replica.begin(shard.size)
    with scope, labels(shared.stages):
        results, carried = program.shard_fn(shard.batch)
    return sums_of(results, carried, shard.size, scope, part), scope


def gradients_of(
    tape: tf.GradientTape, loss: tf.Tensor, sources: Sequence[Any], scope: TowerScope
) -> list[Gradient]:
    """Returns the gradients of the trainable variables, whose values are the sources, widened."""
    shared = scope.shared
    versions = [scope.versions.get(id(variable), []) for variable in shared.trainable]
    # TensorFlow calls the functions that capture variables again.
    with scope.replay() if shared.captured else contextlib.nullcontext():
        found, of_versions = tape.gradient(loss, (list(sources), versions))
    pairs = zip(found, of_versions, strict=True)
    return [widen(add_in_pairs(add_gradients, [first, *others])) for first, others in pairs]


def gradient_factor(totals: Denominators | None, loss_scale: tf.Tensor | None) -> tf.Tensor | None:
    """Returns the factor for the summed loss in the backward pass, a scalar, or None for 1.

    The loss scale applies to the mean loss of the whole batch, so that gradients overflow where
    those of one device do: float16 gradients of a loss summed over a thousand tokens overflow at a
    scale a thousand times smaller.
    """
    if loss_scale is None:
        return None
    if totals is None:
        raise ValueError(
            "A loss scale needs the weight of the whole batch before the backward pass, and this "
            "step does not compute it. Use build_train_step."
        )
    weight = totals.rows
    return tf.cast(loss_scale, weight.dtype) / tf.where(weight > 0, weight, 1)

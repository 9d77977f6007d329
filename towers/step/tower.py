"""One tower: its device, its name, its copy of the variables and its parts of the batch."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import keras
import tensorflow as tf

from towers.batches.shards import Shard
from towers.devices.determinism import sums_stay_nested
from towers.devices.host_placement import tower_device
from towers.step.graph_checks import check_gradients
from towers.step.micro_batches import MicroBatches, sum_one_by_one
from towers.step.parts import Part, part_of
from towers.step.passes import Values, differentiate, forward
from towers.step.program import TowerProgram
from towers.step.sums import Denominators, TowerSums, add_nests, add_sums, finish_micro_batch
from towers.step.synchronized import Rendezvous
from towers.travel.transfers import Upload
from towers.variables.shared_variables import SharedVariables

ALONE = Rendezvous()
Sums = TypeVar("Sums", TowerSums, Denominators)
RunPart = Callable[[Values, Shard, Part], Sums]


class Tower:
    """One tower as a callable, `(shard, step) -> TowerSums`, on its own device.

    Args:
        program: the program that every tower runs.
        variables: the copy of the shared variables that this tower reads, in the order of
            `SharedVariables.all`.
        device: the tower's device, or its devices, one for each stage.
        index: the tower's index in this process, from 0.
        first_tower: the number of this process's first tower among the towers of all processes.
        alone: whether its batch is a whole one, and its states are merged with those of no other
            tower.

    Attributes:
        devices: its devices.
        device: the first of them.
        number: the tower's number among the towers of all processes.
    """

    def __init__(
        self,
        program: TowerProgram,
        variables: Sequence[keras.Variable],
        device: str | Sequence[str],
        index: int,
        first_tower: int = 0,
        *,
        alone: bool = False,
    ):
        self.devices = (device,) if isinstance(device, str) else tuple(device)
        self.device = self.devices[0]
        self.number = first_tower + index
        self._program = program
        self._options = program.options
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
        """Whether `run` needs the denominators of the whole batch."""
        return self._program.shard_fn.needs_denominators

    @contextlib.contextmanager
    def scope(self, name: str = "tower") -> Iterator[None]:
        """The scope of the tower's device, which XLA takes as a whole, and of its name."""
        compiled = self._options.compiled
        device = tf.device(self.device) if compiled else tower_device(*self.devices)
        with device, tf.name_scope(f"{name}_{self._index}"):
            yield

    def read(self, upload: Upload | None = None) -> Values:
        """Returns the variables' values by the variable's id, each read once.

        Args:
            upload: the values that travel to this tower with those of other variables; None if
                each travels alone.
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
            totals: what several losses are divided by, summed over the whole batch; None for one.
            rendezvous: where synchronised layers sum over the towers; by default over this one.
        """
        program, loss_scale = self._program, self._options.loss_scale
        scale = None if loss_scale is None else loss_scale.read()

        def run(values: Values, shard: Shard, part: Part) -> TowerSums:
            return differentiate(program, values, shard, part, scale, totals)

        compiled = self._compile(run)

        def run_and_finish(values: Values, shard: Shard, part: Part) -> TowerSums:
            return finish_micro_batch(compiled(values, shard, part), shard.size)

        sums = self._sum_parts(run_and_finish, add_sums, values, shard, step, rendezvous)
        if self._alone:
            check_assigned_by_none(program.shared, sums)
        if self._index == 0:
            batch = tf.nest.map_structure(tf.type_spec_from_value, shard.batch)
            check_gradients(program, (batch, program.carried.shard_specs), sums.gradients)
        return sums

    def weigh(
        self,
        shard: Shard,
        step: tf.Tensor,
        rendezvous: Rendezvous = ALONE,
        upload: Upload | None = None,
    ) -> Denominators:
        """Returns the denominators of several losses over a shard; arguments as in `__call__`.

        It calls the tower function for its weights alone. TensorFlow leaves out what they do not
        need: for weights that follow from the batch, such as masks, that is the whole model.
        """
        program = self._program

        def run(values: Values, shard: Shard, part: Part) -> Denominators:
            sums, _ = forward(program, values, shard, part)
            return sums.weight

        with self.scope("denominators"):
            values = self.read(upload)
            return self._sum_parts(self._compile(run), add_nests, values, shard, step, rendezvous)

    def evaluate(
        self,
        shard: Shard,
        batch_number: tf.Tensor,
        rendezvous: Rendezvous = ALONE,
        upload: Upload | None = None,
    ) -> TowerSums:
        """Returns the sums over a shard without gradients.

        Args:
            shard: the shard.
            batch_number: the batch's number, an int64 scalar; random numbers derive from it.
            rendezvous: as in `run`.
            upload: as in `read`.
        """
        program = self._program

        def run(values: Values, shard: Shard, part: Part) -> TowerSums:
            return forward(program, values, shard, part)[0]

        with self.scope():
            values = self.read(upload)
            return self._sum_parts(run, add_sums, values, shard, batch_number, rendezvous)

    def _compile(self, run: RunPart[Sums]) -> RunPart[Sums]:
        """Returns a pass over a micro-batch as one that XLA compiles, if it is to."""
        if not self._options.compiled:
            return run
        compiled: RunPart[Sums] = tf.function(run, autograph=False, jit_compile=True)
        return compiled

    def _sum_parts(
        self,
        run: RunPart[Sums],
        add: Callable[[Sums, Sums], Sums],
        values: Values,
        shard: Shard,
        step: tf.Tensor,
        rendezvous: Rendezvous,
    ) -> Sums:
        """Returns the sum of a pass over each micro-batch of a shard, one after the other."""
        options = self._options
        gives_averages = options.batch_norm == "mean" or self._first_part == 0
        shard = self._program.carried.attach(self._index, shard)
        micro_batches = MicroBatches(shard, options.accumulate)

        with rendezvous.join(compiled=options.compiled) as replica:

            def run_part(index: Any) -> Sums:
                inner = values if isinstance(index, int) else within_loop(values)
                part = part_of(
                    self.number,
                    self._first_part + index,
                    options.seed,
                    step,
                    gives_averages=gives_averages,
                    replica=replica,
                )
                return run(inner, micro_batches[index], part)

            in_loop = replica is None or not self._program.synchronized
            in_loop &= len(self.devices) == 1  # A loop would hold all its inputs on one device.
            # A running sum needs the least memory; a sum in pairs has the same bits on any number
            # of towers.
            return sum_one_by_one(
                run_part, options.accumulate, add, in_pairs=sums_stay_nested(), in_loop=in_loop
            )


def within_loop(values: Values) -> Values:
    """Returns the values as tensors of a loop's body, which can be sources of gradients there."""
    return {
        key: tf.identity(value) if isinstance(value, tf.Tensor) else value
        for key, value in values.items()
    }


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

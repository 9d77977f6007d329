"""One tower: its device, its name, its copy of the variables and its parts of the batch."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import keras
import tensorflow as tf

from towers.batches.shards import Shard
from towers.devices.host_placement import tower_device
from towers.step.graph_checks import check_gradients
from towers.step.micro_batches import MicroBatches, sum_one_by_one
from towers.step.options import StepOptions
from towers.step.parts import Part, Parts, part_of
from towers.step.passes import compile_with_xla, forward, run_tower, scope_of, within_loop
from towers.step.program import TowerProgram
from towers.step.sums import Denominators, TowerSums, add_nests
from towers.step.synchronized import Rendezvous, Replica
from towers.travel.transfers import Upload
from towers.variables.shared_variables import SharedVariables


class Tower:
    """One tower as a callable, `(shard, step) -> TowerSums`, on its own device.

    Args:
        program: the program that every tower runs.
        variables: the copy of the shared variables that this tower reads, in the order of
            `SharedVariables.all`.
        device: the tower's device, or its devices, one for each stage.
        index: the tower's index in this process, from 0.
        options: the step's options.
        first_tower: the number of this process's first tower among the towers of all processes.

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
        options: StepOptions = StepOptions(),
        first_tower: int = 0,
    ):
        self.devices = (device,) if isinstance(device, str) else tuple(device)
        self.device = self.devices[0]
        self.number = first_tower + index
        self._program = program
        self._variables = variables
        self._index = index
        self._options = options

    def __call__(
        self,
        shard: Shard,
        step: tf.Tensor,
        totals: Denominators | None = None,
        rendezvous: Rendezvous | None = None,
        upload: Upload | None = None,
    ) -> TowerSums:
        """Returns the sums over a shard; arguments as in `run` and `read`."""
        with self.scope():
            values = self.read(upload)
            return self.run(values, shard, step, totals=totals, rendezvous=rendezvous)

    @property
    def needs_denominators(self) -> bool:
        """Whether `run` needs the denominators of the whole batch."""
        return self._program.shard_fn.needs_denominators

    @contextlib.contextmanager
    def scope(self) -> Iterator[None]:
        """The scope of the tower's device and of its name."""
        with self._device_scope(), tf.name_scope(f"tower_{self._index}"):
            yield

    def _device_scope(self) -> contextlib.AbstractContextManager[None]:
        """Returns the scope of the tower's device, which XLA takes as a whole."""
        return tf.device(self.device) if self._options.compiled else tower_device(*self.devices)

    def read(self, upload: Upload | None = None) -> dict[int, Any]:
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
        values: dict[int, Any],
        shard: Shard,
        step: tf.Tensor,
        *,
        totals: Denominators | None = None,
        first_micro_batch: int | None = None,
        alone: bool = False,
        rendezvous: Rendezvous | None = None,
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
            rendezvous: where synchronised layers sum over the towers; None for this tower alone.
        """
        options, program = self._options, self._program
        shard = program.carried.attach(self._index, shard)
        with self._join(rendezvous) as replica:
            sums = run_tower(
                program,
                values,
                shard,
                self._parts(step, first_micro_batch, replica, alone=alone),
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
        self,
        shard: Shard,
        step: tf.Tensor,
        rendezvous: Rendezvous | None = None,
        upload: Upload | None = None,
        *,
        first_micro_batch: int | None = None,
    ) -> Denominators:
        """Returns the denominators of several losses over a shard; arguments as in `__call__`.

        It calls the tower function for its weights alone. TensorFlow leaves out what they do not
        need: for weights that follow from the batch, such as masks, that is the whole model.
        """
        program = self._program
        with (
            self._device_scope(),
            tf.name_scope(f"denominators_{self._index}"),
            self._join(rendezvous) as replica,
        ):
            parts = self._parts(step, first_micro_batch, replica)
            values, shard = self.read(upload), program.carried.attach(self._index, shard)

            def run(values: dict[int, tf.Tensor], shard: Shard, part: Part) -> Denominators:
                scope = scope_of(program.shared, values, shard, part)
                return forward(program.shard_fn, shard, part, scope).weight

            run = compile_with_xla(run) if self._options.compiled else run
            micro_batches = MicroBatches(shard, parts.num_parts)

            def run_part(index: Any) -> Denominators:
                inner = values if isinstance(index, int) else within_loop(values)
                return run(inner, micro_batches[index], parts.at(index))

            return sum_one_by_one(
                run_part, parts.num_parts, add_nests, in_pairs=True, in_loop=parts.in_loop
            )

    @contextlib.contextmanager
    def _join(self, rendezvous: Rendezvous | None) -> Iterator[Replica | None]:
        """The scope in which synchronised layers sum over the towers, or over this one alone."""
        if rendezvous is None:
            yield None
            return
        replica = rendezvous.join(compiled=self._options.compiled)
        with replica:
            yield replica if isinstance(replica, Replica) else None

    def _parts(
        self,
        step: tf.Tensor,
        first_micro_batch: int | None,
        replica: Replica | None,
        *,
        alone: bool = False,
    ) -> Parts:
        """Returns the tower's parts of the global batch; arguments as in `run`."""
        options, first = self._options, first_micro_batch
        if first is None:
            first = self.number * options.accumulate
        gives_averages = alone or options.batch_norm == "mean" or first == 0

        def part_at(index: Any) -> Part:
            part = part_of(self.number, first + index, options.seed, step, replica)
            if alone and isinstance(index, int):
                part = part._replace(is_first=tf.constant(index == 0))
            return part._replace(gives_averages=gives_averages)

        in_loop = replica is None or not self._program.synchronized
        in_loop &= len(self.devices) == 1  # A loop would hold all its inputs on one device.
        return Parts(part_at, options.accumulate, in_loop)

    def evaluate(
        self,
        shard: Shard,
        batch_number: tf.Tensor,
        rendezvous: Rendezvous | None = None,
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
        with self.scope(), self._join(rendezvous) as replica:
            part = part_of(self.number, self.number, self._options.seed, batch_number, replica)
            values, shard = self.read(upload), program.carried.attach(self._index, shard)
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

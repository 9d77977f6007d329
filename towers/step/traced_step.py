"""A step that is traced once, and its calls: batches are given, or its graph takes them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from towers.batches.calls import shards_of, taken_from
from towers.batches.feed import on_devices
from towers.batches.shards import Shard
from towers.ground.host import HOST
from towers.processes.processes import Processes
from towers.step.probe import Probe
from towers.step.tower_function import TowerProgram
from towers.step.tracing import checked_once, number_on_host, trace
from towers.travel.packing import Nest, cut_by_dtype, indices_by_dtype, join_by_dtype


class TracedStep:
    """The base of steps that all towers make jointly; each says in `_step` what its graph does.

    Args:
        program, specs: what every tower runs, and the specs of the shards that it takes.
        devices, device: those of the towers, and that of its results.
        also: a function of the results that runs in the same trace.
        returns_each: whether a call of several steps returns the results of each.

    Attributes:
        also: what the function `also` returned for the last batch.
        probe: asks the tower function before the first call that is given its batch; None: never.
        carried: the state that is carried from batch to batch.
        specs, devices, processes: the shards it takes, the towers' devices, and the processes.
    """

    def __init__(
        self,
        program: TowerProgram,
        specs: tuple[Shard, ...],
        devices: Sequence[str],
        device: str,
        processes: Processes,
        also: Callable[[Any], Any],
        *,
        probe: Probe,
        returns_each: bool = False,
    ):
        self.also: Any = None
        self.carried, self.devices, self.processes = program.carried, devices, processes
        self._also, self.specs, self._device = also, specs, device
        self._returns_each = returns_each
        self.probe: Probe | None = probe
        # The only trace: what was built is what runs, whatever happens to the model afterwards.
        number = tf.TensorSpec([], tf.int64)
        self._traced = trace(self._run, device, specs, number, shared=program.shared)
        self._call = processes.naming(checked_once(self._traced, specs, number))
        self._taking: dict[str, tuple[Any, Callable[..., Any]]] = {}

    @property
    def graph(self) -> tf.Graph:
        """The step's graph, with a name scope for each tower."""
        return self._traced.graph

    def __call__(self, shards: tuple[Shard, ...], number: int | tf.Tensor) -> Any:
        """Runs the step on a batch and returns its results.

        Args:
            shards: one for each tower, as `towers.engine.split` cuts a batch.
            number: the number of the step, the first is 1; random numbers derive from it.

        Raises:
            ValueError: these are no shards, or not one for each tower.
        """
        shards = tuple(shards) if isinstance(shards, (tuple, list)) else (shards,)
        if len(shards) != len(self.specs) or not all(isinstance(one, Shard) for one in shards):
            kinds = ", ".join(type(one).__name__ for one in shards[:5])
            raise ValueError(
                "A step takes the shards of a batch, one for each of "
                f"{len(self.specs)} towers, and its own number. Received {len(shards)}: {kinds}; "
                f"call step(towers.engine.split_batch(batch, {len(self.specs)}), number), or let "
                "towers.Trainer call it."
            )
        self.carried.check_rows(shards)
        self._begin(shards)
        return self._end(*self._call(shards, number_on_host(number)))

    def read(self, iterator: Any, number: int) -> Any:
        """Runs the step on the next shards of a `tf.data` iterator on the host.

        The graph itself takes them, which saves small steps a call.

        Raises:
            tf.errors.OutOfRangeError: none are left. Variables may have changed.
        """
        self._begin(None)
        call = self._taking_from(iterator, self._read, 1)
        return self._end(*call(iterator, number_on_host(number)))

    def several(self, source: Any, first: int, count: int | None = None) -> list[Any]:
        """Runs the step on each batch of a call, and returns their results, NumPy numbers.

        Each next batch is taken while the step runs: where an iterator fails, variables may have
        changed.

        Args:
            source: batches as `in_calls` makes them, or an iterator as for `read`.
            first: the number of the first of these steps.
            count: the number of the batches that an iterator is to give.
        """
        self._begin(source)
        if self.processes.count > 1:
            return self._one_by_one(source, first, count)
        call = self._taking_from(source, self._several, 2)
        numbers = number_on_host(count or len(source)), number_on_host(first)
        made, results, also = call(source, *numbers)
        return self._end(each_of(results, int(made)), also)

    def _one_by_one(self, source: Any, first: int, count: int | None) -> list[Any]:
        """Does what `several` does in several processes, with a call for each batch.

        TensorFlow gives the collectives of a loop one key, and so one shape: that of the rows that
        the first batch looks up.
        """
        batches: Any = itertools.islice(source, count) if count else iter(source)
        every: list[Any] = []
        also = None
        for number, one in enumerate(batches, first):
            shards = shards_of(one, self.specs) if tf.is_tensor(one) else one
            results, also = self._call(shards, number_on_host(number))
            kept = results if self._returns_each else None
            every.append(tf.nest.map_structure(lambda x: None if x is None else x.numpy(), kept))
            if not self._goes_on(results):
                break
        return self._end(every, also)

    def _step(self, shards: tuple[Shard, ...], number: tf.Tensor) -> Any:
        """Returns the results of a batch, in the graph."""
        raise NotImplementedError(f"{type(self).__name__} must define `_step`, its graph.")

    def _begin(self, source: Any) -> None:
        """Asks the tower function; the source is None for an iterator that is read."""
        if source is not None and self.probe is not None and self.probe.is_pending:
            is_call = tf.is_tensor(source)
            self.probe.ask(shards_of(source[0], self.specs) if is_call else source)

    def _end(self, results: Any, also: Any) -> Any:
        """Returns the results of a call that is done."""
        self.also = also
        return results

    def _goes_on(self, results: Any) -> tf.Tensor:
        """Returns whether a call goes on after a step with such results, a bool scalar."""
        return tf.constant(True)

    def _run(self, shards: tuple[Shard, ...], number: tf.Tensor) -> tuple[Any, Any]:
        results = self._step(shards, number)
        with tf.name_scope("metrics"):
            return results, self._also(results)

    def _taking_from(
        self, source: Any, function: Callable[..., Any], num_numbers: int
    ) -> Callable[..., Any]:
        """Returns a function of a source of batches and numbers, traced for such a source."""
        spec: Any = tf.TensorSpec([None], tf.variant)
        if not tf.is_tensor(source):
            spec = tf.data.IteratorSpec(source.element_spec)
        known, call = self._taking.get(function.__name__, (None, None))
        if call is None or known != spec:
            numbers = [tf.TensorSpec([], tf.int64)] * num_numbers
            traced = trace(function, self._device, spec, *numbers)
            call = self.processes.naming(checked_once(traced, spec, *numbers))
            self._taking[function.__name__] = spec, call
        return call

    def _placed(self, shards: tuple[Shard, ...]) -> tuple[Shard, ...] | None:
        """Returns shards on the towers' devices."""
        # In a loop, an op whose input comes from another device also waits for the loop's turn, and
        # oneDNN joins no kernel that waits. An identity on the tower's device waits instead.
        with tf.control_dependencies(self.carried.check_rows(shards)):
            return on_devices(self.devices, shards).shards

    def _read(self, iterator: Any, number: tf.Tensor) -> Any:
        with tf.device(HOST):
            shards = next(iterator)
        return self._traced(self._placed(shards), number)

    def _several(
        self, source: Any, count: tf.Tensor, first: tf.Tensor
    ) -> tuple[tf.Tensor, Any, Any]:
        """Returns how many steps ran, the results of each, stacked, and `also` of the last one."""
        results, also = self._traced.structured_outputs
        kept = Nest((results if self._returns_each else None, also))

        def make(index: tf.Tensor, one: tf.Tensor) -> tuple[tf.Tensor, list[tf.Tensor]]:
            with tf.device(HOST):
                number = first + tf.cast(index, tf.int64)
                shards = shards_of(one, self.specs)
            results, also = self._traced(self._placed(shards), number)
            own = results if self._returns_each else None
            # One array for each dtype: an op for each number would take longer than a small step.
            return self._goes_on(results), join_by_dtype(kept.flatten((own, also)))

        with tf.device(HOST):
            count = tf.cast(count, tf.int32)
        made, arrays = loop(source, count, make, vectors_of(kept.tensors))
        every = cut_by_dtype([array.stack() for array in arrays], kept.tensors)
        results, also = kept.pack(every)
        last = tf.nest.map_structure(lambda one: None if one is None else one[made - 1], also)
        return made, results, last


def loop(
    source: Any,
    count: tf.Tensor,
    make: Callable[[tf.Tensor, tf.Tensor], tuple[tf.Tensor, list[tf.Tensor]]],
    specs: Sequence[tf.TensorSpec],
) -> tuple[tf.Tensor, list[tf.TensorArray]]:
    """Returns how many times `make` ran, at most `count`, and arrays of the tensors it returned.

    Args:
        source: what the batches are taken from, each while `make` runs for the one before.
        count: int32 scalar, at least 1.
        make: called with an index and a batch, it returns whether to go on, and tensors.
    """

    def is_unfinished(index: tf.Tensor, is_going: tf.Tensor, *_: Any) -> tf.Tensor:
        with tf.device(HOST):
            return (index < count) & is_going

    def body(index: tf.Tensor, _: tf.Tensor, one: tf.Tensor, arrays: Any) -> tuple[Any, ...]:
        with tf.device(HOST):
            following = taken_from(source, index + 1, count)
        is_going, values = make(index, one)
        pairs = zip(arrays, values, strict=True)
        return index + 1, is_going, following, [array.write(index, value) for array, value in pairs]

    arrays = [tf.TensorArray(one.dtype, count, element_shape=one.shape) for one in specs]
    with tf.device(HOST):
        begin = (tf.constant(0), tf.constant(True), taken_from(source, tf.constant(0), count))
    made, _, _, arrays = tf.while_loop(is_unfinished, body, (*begin, arrays), parallel_iterations=1)
    return made, arrays


def vectors_of(tensors: Sequence[tf.Tensor]) -> list[tf.TensorSpec]:
    """Returns the specs of what `join_by_dtype` makes of tensors; ValueError for unknown shapes."""
    unknown = [str(one.shape) for one in tensors if not one.shape.is_fully_defined()]
    if unknown:
        raise ValueError(
            "A call of several steps keeps the results of each, so their shapes must be known. "
            f"Received {unknown[0]}; tf.ensure_shape(metric, [3]) in the tower function says that "
            "a metric has three numbers. Or leave out steps_per_call."
        )
    groups = [[tensors[index] for index in indices] for indices in indices_by_dtype(tensors)]
    sizes = [sum(one.shape.num_elements() for one in group) for group in groups]
    return [tf.TensorSpec([n], group[0].dtype) for n, group in zip(sizes, groups, strict=True)]


def each_of(results: Any, count: int) -> list[Any]:
    """Returns stacked results as those of each of the first `count` steps, NumPy numbers."""
    if results is None:
        return [None] * count
    if isinstance(results, dict):
        rows = zip(*(each_of(part, count) for part in results.values()), strict=True)
        return [dict(zip(results, row, strict=True)) for row in rows] or [{}] * count
    if isinstance(results, tuple):
        kind: Any = type(results)
        return [kind(*row) for row in zip(*(each_of(p, count) for p in results), strict=True)]
    return list(np.asarray(results)[:count])

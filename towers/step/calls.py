"""Calls of a step whose graph takes the batches: the next one, or several in a loop."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.types.experimental import ConcreteFunction

from towers.batches.calls import shards_of
from towers.batches.feed import are_on_host, on_devices, on_the_host
from towers.batches.shards import Shard
from towers.ground.host import HOST
from towers.step.tracing import number_on_host, trace
from towers.travel.packing import Nest, cut_by_dtype, indices_by_dtype, join_by_dtype

Check = Callable[[tuple[Shard, ...]], None]


class Calls:
    """Calls of a traced step whose graphs take the batches. What the step holds is traced once.

    Args:
        traced: `traced(shards, number) -> (results, also)`.
        device: the device of its results.
        check: adds ops that check shards.
        naming: wraps what is called, as `Processes.naming`.
        goes_on: whether a call goes on after a step with such results, a bool scalar. The results
            of all its steps are returned then; without it, none.
    """

    def __init__(
        self,
        traced: ConcreteFunction,
        specs: tuple[Shard, ...],
        devices: Sequence[str],
        device: str,
        *,
        check: Check,
        naming: Callable[[Callable[..., Any]], Callable[..., Any]],
        goes_on: Callable[[Any], tf.Tensor] | None = None,
    ):
        self._traced, self._specs, self._device = traced, specs, device
        self._check, self._naming, self._goes_on = check, naming, goes_on
        self._place = on_the_host if are_on_host(devices) else on_devices
        self._devices = devices
        self._calls: dict[bool, tuple[Any, Callable[..., Any]]] = {}

    def one(self, iterator: Any, number: int) -> Any:
        """Runs the step with this number on the next shards of a `tf.data` iterator."""
        return self._call(iterator, True, self._one)(iterator, number_on_host(number))

    def several(self, source: Any, first: int, count: int) -> tuple[list[Any], Any]:
        """Runs as many steps; returns the results of each, NumPy numbers, and `also` of the last.

        Args:
            source: a `tf.data` iterator over shards, or batches as `in_calls` makes them.
        """
        call = self._call(source, False, self._several)
        made, results, also = call(source, number_on_host(count), number_on_host(first))
        return each_of(results, int(made)), also

    def _call(self, source: Any, is_one: bool, function: Callable[..., Any]) -> Callable[..., Any]:
        """Returns a function, traced for such a source of batches."""
        spec: Any = tf.TensorSpec([None], tf.variant)
        if not tf.is_tensor(source):
            spec = tf.data.IteratorSpec(source.element_spec)
        known, call = self._calls.get(is_one, (None, None))
        if call is None or known != spec:
            numbers = [tf.TensorSpec([], tf.int64)] * (1 if is_one else 2)
            call = self._naming(trace(function, self._device, spec, *numbers))
            self._calls[is_one] = spec, call
        return call

    def _take(self, source: Any, index: tf.Tensor | int = 0) -> Any:
        """Returns the shards of a batch on the towers' devices."""
        with tf.device(HOST):
            queued = tf.is_tensor(source)
            shards = shards_of(source[index], self._specs) if queued else next(source)
        self._check(shards)
        return self._place(self._devices, shards).shards

    def _one(self, iterator: Any, number: tf.Tensor) -> Any:
        return self._traced(self._take(iterator), number)

    def _several(
        self, source: Any, count: tf.Tensor, first: tf.Tensor
    ) -> tuple[tf.Tensor, Any, Any]:
        """Returns how many steps ran, the results of each, stacked, and `also` of the last one."""
        results, also = self._traced.structured_outputs
        kept = Nest((results if self._goes_on else None, also))

        def make(index: tf.Tensor) -> tuple[tf.Tensor, list[tf.Tensor]]:
            with tf.device(HOST):
                number = first + tf.cast(index, tf.int64)
            results, also = self._traced(self._take(source, index), number)
            is_going = tf.constant(True) if self._goes_on is None else self._goes_on(results)
            # One array for each dtype: an op for each number would take longer than a small step.
            return is_going, join_by_dtype(kept.flatten((results if self._goes_on else None, also)))

        with tf.device(HOST):
            count = tf.cast(count, tf.int32)
        made, arrays = loop(count, make, vectors_of(kept.tensors))
        every = cut_by_dtype([array.stack() for array in arrays], kept.tensors)
        results, also = kept.pack(every)
        last = tf.nest.map_structure(lambda one: None if one is None else one[made - 1], also)
        return made, results, last


def loop(
    count: tf.Tensor,
    make: Callable[[tf.Tensor], tuple[tf.Tensor, list[tf.Tensor]]],
    specs: Sequence[tf.TensorSpec],
) -> tuple[tf.Tensor, list[tf.TensorArray]]:
    """Returns how many times `make` ran, at most `count`, and arrays of the tensors it returned.

    Args:
        count: int32 scalar, at least 1.
        make: called with an index, it returns whether to go on, and tensors.
    """

    def is_unfinished(index: tf.Tensor, is_going: tf.Tensor, arrays: Any) -> tf.Tensor:
        with tf.device(HOST):
            return (index < count) & is_going

    def body(index: tf.Tensor, _: tf.Tensor, arrays: Any) -> tuple[Any, ...]:
        is_going, values = make(index)
        pairs = zip(arrays, values, strict=True)
        return index + 1, is_going, [array.write(index, value) for array, value in pairs]

    arrays = [tf.TensorArray(one.dtype, count, element_shape=one.shape) for one in specs]
    begin = (tf.constant(0), tf.constant(True), arrays)
    made, _, arrays = tf.while_loop(is_unfinished, body, begin, parallel_iterations=1)
    return made, arrays


def vectors_of(tensors: Sequence[tf.Tensor]) -> list[tf.TensorSpec]:
    """Returns the specs of what `join_by_dtype` makes of tensors."""
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

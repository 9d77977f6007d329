"""Calls of a step: several updates from several batches in one loop of the graph."""

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
from towers.step.tracing import trace

Check = Callable[[tuple[Shard, ...]], None]


def several(
    traced: ConcreteFunction,
    specs: tuple[Shard, ...],
    devices: Sequence[str],
    device: str,
    *,
    check: Check,
    goes_on: Callable[[Any], tf.Tensor] | None = None,
) -> ConcreteFunction:
    """Returns `call(queued, first) -> (number, results, also)`, so many calls of a traced step.

    What the step holds is not traced again.

    Args:
        traced: `traced(shards, number) -> (results, also)`.
        specs: the specs of its shards.
        devices: the towers' devices.
        device: the device of its results.
        check: adds ops that check shards.
        goes_on: whether the loop goes on after a step with such results, a bool scalar. The results
            of all steps are returned then, stacked; without it, none.

    The function's arguments are the batches, variant [batches] as `in_calls` makes them, and the
    number of the first of these steps. It returns how many steps ran, their results, and `also` of
    the last one.
    """
    place = on_the_host if are_on_host(devices) else on_devices
    results, also = traced.structured_outputs
    kept = (results if goes_on else None, also)

    def call(queued: tf.Tensor, first: tf.Tensor) -> tuple[tf.Tensor, Any, Any]:
        def make(index: tf.Tensor) -> tuple[tf.Tensor, list[tf.Tensor]]:
            with tf.device(HOST):
                shards = shards_of(queued[index], specs)
                number = first + tf.cast(index, tf.int64)
            check(shards)
            results, also = traced(place(devices, shards).shards, number)
            is_going = tf.constant(True) if goes_on is None else goes_on(results)
            return is_going, tensors_of((results if goes_on else None, also))

        with tf.device(HOST):
            count = tf.size(queued)
        made, arrays = loop(count, make, tensors_of(kept))
        split = len(tensors_of(kept[0]))
        stacked = [array.stack() for array in arrays[:split]]
        last = [array.read(made - 1) for array in arrays[split:]]
        return made, filled(kept[0], stacked), filled(kept[1], last)

    return trace(call, device, tf.TensorSpec([None], tf.variant), tf.TensorSpec([], tf.int64))


def loop(
    count: tf.Tensor,
    make: Callable[[tf.Tensor], tuple[tf.Tensor, list[tf.Tensor]]],
    specs: Sequence[tf.TensorSpec],
) -> tuple[tf.Tensor, list[tf.TensorArray]]:
    """Returns how many times `make` ran, at most `count`, and arrays of the tensors it returned.

    Args:
        count: int32 scalar, at least 1.
        make: called with an index, it returns whether to go on, and tensors.
        specs: the specs of these.
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


def tensors_of(nest: Any) -> list[Any]:
    """Returns what is in a nest, without None."""
    return [part for part in tf.nest.flatten(nest) if part is not None]


def filled(nest: Any, values: Sequence[Any]) -> Any:
    """Returns the nest with other values, one for each that is not None."""
    left = iter(values)
    return tf.nest.map_structure(lambda part: None if part is None else next(left), nest)


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

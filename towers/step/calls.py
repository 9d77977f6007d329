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
    kept = traced.structured_outputs if goes_on else (None, traced.structured_outputs[1])

    def call(queued: tf.Tensor, first: tf.Tensor) -> tuple[tf.Tensor, Any, Any]:
        with tf.device(HOST):
            count = tf.size(queued)

        def body(index: tf.Tensor, is_going: tf.Tensor, arrays: list[Any]) -> tuple[Any, ...]:
            with tf.device(HOST):
                shards = shards_of(queued[index], specs)
                number = first + tf.cast(index, tf.int64)
            check(shards)
            results, also = traced(place(devices, shards).shards, number)
            if goes_on is not None:
                is_going = goes_on(results)
            values = tensors_of((results if goes_on else None, also))
            pairs = zip(arrays, values, strict=True)
            return index + 1, is_going, [array.write(index, value) for array, value in pairs]

        def is_unfinished(index: tf.Tensor, is_going: tf.Tensor, arrays: Any) -> tf.Tensor:
            with tf.device(HOST):
                return (index < count) & is_going

        arrays = [
            tf.TensorArray(one.dtype, count, element_shape=one.shape) for one in tensors_of(kept)
        ]
        begin = (tf.constant(0), tf.constant(True), arrays)
        made, _, arrays = tf.while_loop(is_unfinished, body, begin, parallel_iterations=1)
        split = len(tensors_of(kept[0]))
        stacked = [array.stack() for array in arrays[:split]]
        last = [array.read(made - 1) for array in arrays[split:]]
        return made, filled(kept[0], stacked), filled(kept[1], last)

    specs_of_call = (tf.TensorSpec([None], tf.variant), tf.TensorSpec([], tf.int64))
    return trace(call, device, *specs_of_call)


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

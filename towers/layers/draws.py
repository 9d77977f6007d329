"""Random draws that follow from the row alone, for the time in which a layer is asked.

Each row draws the same numbers in the whole batch and in a part of it, so that both agree unless
the layer couples its rows. Rows differ from each other: an order drawn at random is not the order
in which they come.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import random
from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from towers.ground.hooks import Hook
from towers.variables.own_draws import DRAWS

NEXT_SEED = Hook(keras.random.SeedGenerator, "next")


@contextlib.contextmanager
def numbers_kept() -> Iterator[None]:
    """The scope that leaves the generators of Python and NumPy as they were before it."""
    of_python, of_numpy = random.getstate(), np.random.get_state()
    try:
        yield
    finally:
        random.setstate(of_python)
        np.random.set_state(of_numpy)


@contextlib.contextmanager
def draws_by_row(start: int, size: int) -> Iterator[None]:
    """The scope in which rows `start` to `start + size` draw; BatchNorm is in inference mode.

    A stateless op draws what it always does, unless Keras has just made the seed: of those, towers
    have their own. Draws and BatchNorm of other threads are as ever.
    """
    seeds: list[Any] = []

    def next_seed(original: Callable[..., Any], /, *args: Any, **options: Any) -> Any:
        seeds.append(original(*args, **options))
        return seeds[-1]

    with contextlib.ExitStack() as stack:
        for kind in kinds_of(keras.layers.BatchNormalization):
            stack.enter_context(normalise(kind).through(in_inference))
        for name, hook in DRAWS.items():
            stack.enter_context(hook.through(functools.partial(draw, name, start, size, seeds)))
        stack.enter_context(NEXT_SEED.through(next_seed))
        yield


def kinds_of(layer: Any) -> Iterator[Any]:
    """Yields a class of layers, and those derived from it that are called in their own way."""
    if "call" in vars(layer):
        yield layer
    for kind in layer.__subclasses__():
        yield from kinds_of(kind)


@functools.cache
def normalise(kind: Any) -> Hook:
    """Returns the hook around the calls of a kind of BatchNorm."""
    return Hook(kind, "call")


def in_inference(original: Callable[..., Any], layer: Any, *args: Any, **options: Any) -> Any:
    """Returns what BatchNorm does in inference mode, in which it treats rows apart."""
    given = inspect.signature(original).bind(layer, *args, **options).arguments
    if layer.synchronized and given.get("mask") is not None:
        raise ValueError("Keras synchronizes no statistics of inputs with a mask")
    return call_in_inference(original, layer, *args, **options)


def call_in_inference(call: Callable[..., Any], *args: Any, **options: Any) -> Any:
    """Returns what a layer's `call` returns with `training=False`, if it takes that."""
    bound = inspect.signature(call).bind(*args, **options)
    bound.arguments["training"] = False
    return call(*bound.args, **bound.kwargs)


def draw(
    op: str,
    start: int,
    size: int,
    seeds: list[Any],
    original: Callable[..., Any],
    /,
    *args: Any,
    **options: Any,
) -> Any:
    """Returns what an op draws by row; a shuffle brings every row to the next place.

    There are `size` rows from `start` on. The seeds are those that Keras has made since the last
    draw.
    """
    if op.startswith("stateless") and not seeds:
        return original(*args, **options)
    if "full_int" not in op:  # As in a split, whose results are seeds too.
        seeds.clear()
    given = inspect.signature(original).bind(*args, **options)
    given.apply_defaults()
    if "shuffle" in op:
        return tf.roll(given.arguments["value"], 1, axis=0)
    shape = tf.convert_to_tensor(given.arguments["shape"])
    static = tf.get_static_value(shape, partial=True)
    drawn = rescaled(op, fractions(tf.cast(shape, tf.int32), start, size), given.arguments)
    return drawn if static is None else tf.ensure_shape(drawn, static)


def rescaled(op: str, uniform: tf.Tensor, given: dict[str, Any]) -> tf.Tensor:
    """Returns fractions from 0 to 1 as what an op with these arguments draws."""
    if "int" in op:
        low, high = given.get("minval", 0), given.get("maxval", 2**31 - 1)
        dtype = given.get("dtype") if "full" in op else tf.convert_to_tensor(low).dtype
        low, high = (tf.cast(bound, tf.float64) for bound in (low, high))
        return tf.cast(low + tf.floor(uniform * (high - low)), dtype)
    value = (uniform - 0.5) * 3.0 if "normal" in op else uniform
    return tf.cast(value, given.get("dtype") or tf.float32)


def fractions(shape: tf.Tensor, start: int, size: int) -> tf.Tensor:
    """Returns float64 numbers from 0 to 1 that follow from the row and the place in it."""
    if shape.shape[0] == 0:
        return tf.constant(0.4, tf.float64)
    count = tf.reduce_prod(shape[1:])
    first = tf.where(shape[0] % size == 0, start * (shape[0] // size), 0)
    place = tf.range(shape[0])[:, None] + first
    numbers = tf.cast(place, tf.float64) * 7.31 + tf.cast(tf.range(count)[None], tf.float64) + 1.0
    return tf.reshape(tf.math.floormod(tf.sin(numbers * 12.9898) * 43758.5453, 1.0), shape)

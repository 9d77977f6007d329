"""Ops that draw random numbers by a state of their own, such as that of `tf.nn.dropout`.

No checkpoint holds such a state, and with a seed all towers draw the same numbers by it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from towers.ground.hooks import Hook
from towers.ground.private_apis import random_ops

DRAWS = {name: Hook(module, name) for module, name in random_ops()}
OWN_DRAWS = {name: hook for name, hook in DRAWS.items() if not name.startswith("stateless")}
_BY_SEED = {
    "random_standard_normal": tf.random.stateless_normal,
    "random_uniform": tf.random.stateless_uniform,
    "truncated_normal": tf.random.stateless_truncated_normal,
}


def draw_by_seed(
    op: str, seed: tf.Tensor, original: Callable[..., Any], /, *args: Any, **options: Any
) -> tf.Tensor:
    """Returns what an op of `OWN_DRAWS` draws, as a function of a seed, int64 [2].

    The seeds among its own arguments are not read: each call has another one.
    """
    given = inspect.signature(original).bind(*args, **options).arguments
    if op == "random_shuffle":
        return tf.random.experimental.stateless_shuffle(given["value"], seed)
    if op == "random_uniform_int":
        low, high = tf.convert_to_tensor(given["minval"]), tf.convert_to_tensor(given["maxval"])
        return tf.random.stateless_uniform(given["shape"], seed, low, high, low.dtype)
    return _BY_SEED[op](given["shape"], seed, dtype=given["dtype"])


def fold_in(seed: tf.Tensor, number: int | tf.Tensor) -> tf.Tensor:
    """Returns a new seed, int64 [2], a function of a seed and a number."""
    return tf.random.experimental.stateless_fold_in(seed, tf.cast(number, tf.int64))

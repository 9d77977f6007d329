"""The tower function that a user writes for one shard: its types, and checks of its results."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from towers.step.shards import Batch

RESERVED_METRICS = (
    "loss", "examples", "gradient_norm", "examples_per_second", "input_wait", "learning_rate",
    "staleness",
)  # fmt: skip
# A metric is a sum over the examples, divided by the weight, or a pair (sum, its own weight).
Metrics = dict[str, Any]
CarriedValues = Any  # Any nest of tensors whose first dimension counts the rows of a batch.
# As users write it: (batch) -> (loss_sum, weight, metrics).
TowerFn = Callable[..., tuple[Any, ...]]
ShardFn = Callable[  # As a tower calls it, with the pair (batch, state).
    [tuple[Batch, CarriedValues]], tuple[tuple[tf.Tensor, tf.Tensor, Metrics], CarriedValues]
]


def with_state(tower_fn: TowerFn, specs: Any) -> ShardFn:
    """Returns the tower function as a tower calls it: with the pair (batch, state).

    Args:
        tower_fn: `tower_fn(batch, state) -> (loss_sum, weight, metrics, state)`, or, without a
            carried state, `tower_fn(batch) -> (loss_sum, weight, metrics)`.
        specs: the specs of a shard's state; () without a carried state.
    """

    def run(pair: tuple[Batch, CarriedValues]) -> Any:
        batch, nothing = pair
        return check_results(tower_fn(batch)), nothing

    def run_with_state(pair: tuple[Batch, CarriedValues]) -> Any:
        results = tower_fn(*pair)
        if not isinstance(results, tuple) or len(results) != 4:
            raise ValueError(
                "A tower function that carries a state returns (loss_sum, weight, metrics, "
                f"state). Received {results!r}."
            )
        return check_results(results[:3]), check_state(results[3], specs)

    return run_with_state if specs else run


def check_state(state: CarriedValues, specs: Any) -> CarriedValues:
    """Returns a new state as tensors; raises ValueError unless its specs match."""
    try:
        tf.nest.assert_same_structure(specs, state, check_types=False)
        values = [tf.convert_to_tensor(value) for value in tf.nest.flatten(state)]
        pairs = zip(tf.nest.flatten(specs), values, strict=True)
        same = all(spec.is_compatible_with(value) for spec, value in pairs)
    except (TypeError, ValueError):
        same = False
    if not same:
        raise ValueError(
            "The new state must have the structure, the dtypes and the shapes of the old one. "
            f"Expected {specs}. Received {state}."
        )
    return tf.nest.pack_sequence_as(specs, values)


def check_results(results: Any) -> tuple[tf.Tensor, tf.Tensor, Metrics]:
    """Returns a tower function's results as tensors; raises ValueError if they are wrong."""
    if not isinstance(results, tuple) or len(results) != 3 or not isinstance(results[2], dict):
        raise ValueError(
            "A tower function returns (loss_sum, weight, metrics): two scalars and a dict of "
            f"scalars. Received {results!r}."
        )
    loss, weight, metrics = results
    loss, weight = tf.convert_to_tensor(loss), tf.convert_to_tensor(weight)
    if loss.shape.rank != 0 or weight.shape.rank != 0 or not loss.dtype.is_floating:
        raise ValueError(
            "A tower function returns the loss summed over the shard, a floating-point scalar, "
            f"and its weight, a scalar. Received a loss of shape {loss.shape} and "
            f"{loss.dtype.name}, and a weight of shape {weight.shape}; "
            "use tf.reduce_sum, not the mean."
        )
    for name, value in metrics.items():
        check_metric(name, value)
    if loss.dtype in (tf.float16, tf.bfloat16):
        loss = tf.cast(loss, tf.float32)
    return loss, weight, metrics


def check_metric(name: str, value: Any) -> None:
    """Raises ValueError for a reserved name or a metric of another form than scalars."""
    if name in RESERVED_METRICS:
        raise ValueError(
            f"The engine itself reports {', '.join(RESERVED_METRICS)}. Received a "
            f"metric {name!r}; give it another name."
        )
    parts = value if isinstance(value, tuple) else (value,)
    shapes = [tuple(tf.convert_to_tensor(part).shape) for part in parts]
    is_pair = isinstance(value, tuple)
    if len(parts) != 1 + is_pair or any(shape != () for shape in shapes):
        raise ValueError(
            "A metric is a sum over the shard, a scalar, or a pair of scalars (sum, weight). "
            f"Received {name!r} with shapes {shapes}; use tf.reduce_sum, not the mean."
        )

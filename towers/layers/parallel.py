"""One function call across several devices: split the rows, run each part, merge the outputs."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import keras
import tensorflow as tf

from towers.batches.shards import check_batch_spec
from towers.devices.placement import check_devices, check_present
from towers.ground.arguments import check_choice
from towers.ground.concrete_function import concrete_function
from towers.ground.host import HOST
from towers.ground.private_apis import could_possibly_record
from towers.layers.companions import companions_of
from towers.layers.gradient import Towers
from towers.layers.rows import CONCATENATE, MEAN, SUM, Way, even_cut
from towers.layers.scope import CallScope, captured_in

MERGES = ("auto", SUM, MEAN, CONCATENATE)


def parallel(
    function: Callable[..., Any],
    devices: Sequence[str],
    *,
    merge: Any = "auto",
    variables: keras.Model | Sequence[keras.Variable] = (),
    **tensors: Any,
) -> Any:
    """Returns what `function(**tensors)` returns, computed by a tower on each device.

    Each tower gets its rows of every tensor, as `towers.engine.split_batch` cuts them. It works
    eagerly and in a `tf.function`, for inference and under a `tf.GradientTape`; each tower's
    gradients are computed on its device, also those of tensors that the function takes from
    around it. Values that the function assigns to non-trainable Keras variables are merged and
    assigned once: BatchNorm's averages as means weighted by rows, counters by their `aggregation`.

    Args:
        function: takes the tensors by name and uses Keras layers made outside of it.
        devices: one device per tower, in the order of the rows.
        merge: how the towers' outputs are merged: `sum`; `mean`, weighted by the towers' rows;
            `concatenate`, in tower order; `auto`, which sums scalars and concatenates other
            tensors; or a nest of these, one for each output.
        variables: a model or Keras variables that each tower reads only once, however often the
            function uses them. This is faster for layers with a loop, such as an LSTM.
        tensors: by name, tensors or nests of them, all with the same number of rows. If there are
            fewer rows than devices, towers without rows do not contribute.

    Raises:
        ValueError: an argument is wrong, or an output cannot be merged in this way.

    >>> kernel = tf.constant([[2.0]])
    >>> features = tf.constant([[1.0], [2.0], [4.0]])
    >>> def predict(features):
    ...     return {"outputs": features @ kernel, "cost": tf.reduce_sum(features)}
    >>> merged = parallel(predict, ["/CPU:0", "/CPU:0"], features=features)
    >>> merged["outputs"].numpy().ravel().tolist(), float(merged["cost"])
    ([2.0, 4.0, 8.0], 7.0)
    """
    check_devices(devices)
    check_present(devices)
    for choice in keras.tree.flatten(merge):
        check_choice("merge", choice, MERGES)
    tensors = tf.nest.map_structure(tf.convert_to_tensor, tensors)
    check_batch_spec(tf.nest.map_structure(tf.TensorSpec.from_tensor, tensors))
    run, rows = functools.partial(call, function, tensors), tf.nest.flatten(tensors)
    if rows[0].shape[0] == 0:
        raise ValueError(f"There is nothing to run: the tensors {list(tensors)} have no rows.")
    listed = list(getattr(variables, "variables", variables))
    is_graph = not tf.executing_eagerly()
    captured = []
    if is_graph or could_possibly_record():  # Else no gradient is needed, and no trace.
        trace = concrete_function(functools.partial(run, scope=CallScope(0)), rows)
        captured = captured_in(trace.graph)
    with tf.device(HOST):
        cut = even_cut(rows[0], devices)
        towers = Towers(cut, HOST, sums_rows=False, for_function=is_graph)
        return join_outputs(towers, towers.run(run, rows, listed, captured), merge)


def call(
    function: Callable[..., Any], tensors: dict[str, Any], rows: list[tf.Tensor], scope: CallScope
) -> Any:
    """Returns the function's outputs for some rows of the tensors."""
    with scope:
        outputs = function(**tf.nest.pack_sequence_as(tensors, rows))
        return tf.nest.map_structure(tf.convert_to_tensor, outputs)


def join_outputs(towers: Towers, outputs: Sequence[Any], merge: Any) -> Any:
    """Returns the towers' outputs joined into one nest, what has rows with what goes with it."""
    choices = tf.nest.flatten(choices_for(outputs[0], merge))
    columns = list(zip(*map(tf.nest.flatten, outputs), strict=True))
    values = [parts_for(*pair) for pair in zip(choices, columns, strict=True)]
    companions = [
        (index, name) for index, choice in enumerate(choices)
        for name in companions_of(columns[index][0]) if choice == CONCATENATE
    ]  # fmt: skip
    values += [[getattr(one, name) for one in columns[index]] for index, name in companions]
    ways = [Way(one, multiple=None) for one in (*choices, *[CONCATENATE] * len(companions))]
    joined = towers.join(values, ways)
    for (index, name), one in zip(companions, joined[len(choices) :], strict=True):
        setattr(joined[index], name, one)
    return tf.nest.pack_sequence_as(outputs[0], joined[: len(choices)])


def choices_for(outputs: Any, merge: Any) -> Any:
    """Returns a nest like the outputs, with the way to merge each output."""

    def choose(choice: str, part: Any) -> Any:
        if choice != "auto":
            return tf.nest.map_structure(lambda _: choice, part)
        return tf.nest.map_structure(lambda one: SUM if one.shape.rank == 0 else CONCATENATE, part)

    try:
        return keras.tree.map_structure_up_to(merge, choose, merge, outputs)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"merge must be one of {', '.join(MERGES)}, or a nest of them that fits the function's "
            f"outputs. Received {merge!r} for {outputs!r}."
        ) from error


def parts_for(choice: str, parts: Sequence[tf.Tensor]) -> Sequence[tf.Tensor]:
    """Returns the towers' parts of an output, of a type that can be joined as chosen.

    Raises:
        ValueError: the output cannot be joined so.
    """
    part = parts[0]
    if choice == CONCATENATE and part.shape.rank == 0:
        raise ValueError("merge='concatenate' takes outputs with rows. Received a scalar.")
    if choice != CONCATENATE and part.dtype in (tf.bool, tf.string):
        raise ValueError(
            f"Only numbers have a {choice}. Received an output of type {part.dtype.name}; cast it, "
            "or use merge='concatenate' for an output with rows."
        )
    is_whole = choice == MEAN and part.dtype.is_integer
    return [tf.cast(part, tf.float64) for part in parts] if is_whole else parts

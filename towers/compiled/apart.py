"""Whether a compiled model's layers, losses and metrics treat rows apart: asked with data."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf
from keras import ops

from towers.compiled.checks import (
    OF_CLASSES,
    NeedsLayersError,
    function_name,
    is_of_own_function,
    labels_line_up,
)
from towers.compiled.data import Data
from towers.compiled.tower_function import call, has_equal_rows, matched_losses
from towers.ground.concrete_function import concrete_function
from towers.ground.host import HOST
from towers.ground.private_apis import (
    compile_loss_of,
    compile_metrics_of,
    flatten_layers,
    loss_options,
    metric_function,
    metrics_by_output,
    takes_training,
)
from towers.layers.asking import CUT, ask, unnoticed
from towers.layers.part import Call
from towers.layers.plain import needs_trace
from towers.layers.rows import CONCATENATE, MEAN, SUM, Way
from towers.layers.scope import CallScope
from towers.layers.values import Values
from towers.variables.shared_variables import is_seed


class Compared(NamedTuple):
    """What compares labels with outputs, and has to have a value for each row.

    Attributes:
        kind, name: such as "loss", and its name.
        function: `function(y_true, y_pred)` returns the values.
        dtype: of what it is given; None: as it is.
        labels, output: its labels and its output, tensors or symbolic ones.
    """

    kind: str
    name: str
    function: Callable[[Any, Any], Any]
    dtype: str | None
    labels: Any
    output: Any


def asked_of(model: keras.Model, y: Any, y_pred: Any) -> list[Compared]:
    """Returns the losses and metrics of a built model that are asked whether they treat rows apart.

    Those that Keras wrote do, if labels and outputs line up. Keras's hold for the others.
    """
    losses = compile_loss_of(model)
    found = [] if losses is None else matched_losses(losses, y, y_pred)
    asked = [
        Compared("loss", loss.name, loss.call, loss.dtype, labels, output)
        for loss, _, labels, output, _ in found
        # A loss of Keras's that reduces the last axis has a value for each row.
        if not (has_equal_rows(loss) and loss_options(loss).get("axis", -1) == -1)
        or not (labels_line_up(labels, output) or function_name(loss) in OF_CLASSES)
    ]
    for metric, labels, output in metrics_by_output(compile_metrics_of(model), y, y_pred):
        if is_of_own_function(metric):
            fn, options = metric_function(metric)
            function = functools.partial(fn, **options)
            asked.append(Compared("metric", metric.name, function, None, labels, output))
    return asked


def check_rows_apart(
    model: keras.Model, devices: Sequence[str], data: Data, batch: Any, outputs: Any, training: bool
) -> None:
    """Raises NeedsLayersError unless layers, and losses that Keras did not write, treat rows apart.

    They are asked with the first batch, each tower's share on its device. A model of Keras's layers
    alone that take any numbers is asked with a few made-up rows first: data may be slow to begin,
    or shuffle in another order once it has begun.

    Args:
        batch, outputs: symbolic ones.
        training: whether they are called as in a training.
    """
    x, y, _ = keras.utils.unpack_x_y_sample_weight(batch)
    asks = bool(asked_of(model, y, outputs))
    # A layer that says what numbers it takes, such as Equalization, may leave all others alone.
    takes_any = not any(hasattr(layer, "value_range") for layer in flatten_layers(model))
    is_of_keras = takes_any and not needs_trace(model, "sum")
    is_made_up = is_of_keras and (not asks or data.reshuffles)
    if is_made_up:
        x, y, _ = map(made_up, keras.utils.unpack_x_y_sample_weight(data.spec))
    if not is_made_up or why_coupled(model, devices[:1], x, training):
        try:
            x, y, _ = keras.utils.unpack_x_y_sample_weight(data.first_batch())
        except (StopIteration, tf.errors.OutOfRangeError):
            return  # Data without examples is told of where it is used.
        reason = why_coupled(model, devices, x, training)
        if reason:
            raise NeedsLayersError(f"the model {reason}{'' if training else ' in an evaluation'}")
    if asks:
        check_values_apart(model, y, call(model, x, training=False))


def why_assigned(whole: Call) -> str | None:
    """Returns what a call assigns that draws no random numbers; an evaluation would drop it."""
    scope = CallScope(0)
    with unnoticed(whole):
        whole.outcome(scope)
    paths = (one.path for one in scope.assigned if not is_seed(one))
    return next((f"assigns '{path}'" for path in paths), None)


def why_coupled(model: keras.Model, devices: Sequence[str], x: Any, training: bool) -> str | None:
    """Returns why towers cannot run the model on parts of these inputs; None if they can."""
    options = {"training": training} if takes_training(model) else {}
    whole = Call(model, keras.layers.Layer.__call__, (x,), options)
    answer = ask(whole, devices, traces=needs_trace(model, "sum"))
    if answer.not_in_step:
        return answer.not_in_step
    if answer.way == CUT and all(way in (Way(CONCATENATE), Way(MEAN)) for way in answer.ways):
        return None if training else why_assigned(whole)
    is_sum = any(way.kind == SUM for way in answer.ways)
    none = "adds or returns a sum over the batch" if is_sum else "returns no row for each example"
    return answer.reason or none


def made_up(spec: Any) -> Any:
    """Returns a few rows for this spec: integers are 0 and 1, lengths of any size are 8."""

    def rows(one: tf.TypeSpec) -> Any:
        if not isinstance(one, tf.TensorSpec) or one.dtype in (tf.string, tf.resource):
            return one
        shape = [4, *(8 if size is None else size for size in one.shape[1:])]
        place = tf.reshape(tf.range(np.prod(shape), dtype=tf.float64), shape)
        values = tf.sin(place * 12.9898 + 1.0)
        return tf.cast(values if one.dtype.is_floating else values > 0, one.dtype)

    with tf.device(HOST):
        return tf.nest.map_structure(rows, spec)


def check_values_apart(model: keras.Model, y: Any, y_pred: Any) -> None:
    """Raises NeedsLayersError for losses and metrics whose values for a row depend on others."""
    for one in asked_of(model, y, y_pred):
        name = f"the {one.kind} '{one.name}'"
        pair = [ops.convert_to_tensor(value, one.dtype) for value in (one.labels, one.output)]
        values = concrete_function(one.function, *pair)
        if values.graph.variables or any(c.dtype == tf.resource for c, _ in values.graph.captures):
            raise NeedsLayersError(f"{name} uses variables")
        layer = Values(one.function, one.dtype)  # A call does not keep it alive.
        answer = ask(Call(layer, keras.layers.Layer.__call__, tuple(pair), {}), [HOST])
        reason = answer.not_in_step or answer.reason
        if reason or answer.way != CUT or answer.ways != [Way(CONCATENATE)]:
            raise NeedsLayersError(f"{name} {reason or 'returns no value for each example'}")

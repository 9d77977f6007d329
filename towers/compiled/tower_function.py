"""A compiled model's losses, each as a sum and what it is divided by, and the logs out of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import keras
import tensorflow as tf
from keras import ops

from towers.compiled.argmax import argmax_in_one_pass
from towers.ground.private_apis import (
    CompileLoss,
    apply_mask,
    compile_loss_of,
    compile_metrics_of,
    get_keras_mask,
    loss_tracker,
    squeeze_or_expand_to_same_rank,
    takes_training,
    with_losses,
)
from towers.step.results import EvaluationResults, StepResults, mean_metric
from towers.step.sums import Denominators
from towers.step.tower_function import TowerFn
from towers.variables.tower_scope import is_of

LOSS, STATE = "compiled_loss_{}", "compiled_metric_{}"
ROWS = "rows"


def compiled_tower_fn(model: keras.Model, *, training: bool) -> TowerFn:
    """Returns the tower function of a compiled model that is built.

    Its metrics are each loss of `compile` (by the name `LOSS`), and the states of the metrics of
    `compile` (by the name `STATE`), which begin with zeros in every shard.
    """

    def tower_fn(batch: Any) -> tuple[Any, Any, dict[str, Any]]:
        x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(batch)
        y_pred = call(model, x, training=training)
        rows = tf.cast(tf.shape(tf.nest.flatten(x)[0])[0], keras.config.floatx())
        losses = compile_loss_of(model)
        # The towers' means are recorded after they are added.
        found = [] if losses is None else matched_losses(losses, y, y_pred, sample_weight)
        parts = [loss_part(*one, rows) for one in found]
        metrics: dict[str, Any] = {
            LOSS.format(index): (part.total, rows if part.divisor is ROWS else part.divisor)
            for index, part in enumerate(parts)
        }
        states = metric_states(model, y, y_pred, sample_weight)
        metrics |= {STATE.format(index): (state, None) for index, state in enumerate(states)}
        parts += [added_part(loss, rows) for loss in model.losses]
        if not parts:
            raise ValueError("There is no loss to train. Pass a loss to model.compile().")
        return (*combine(parts, rows), metrics)

    return tower_fn


def call(model: keras.Model, x: Any, *, training: bool) -> Any:
    """Returns the model's outputs, as Keras's own steps call it."""
    return model(x, training=training) if takes_training(model) else model(x)


def metric_states(model: keras.Model, y: Any, y_pred: Any, sample_weight: Any) -> list[tf.Tensor]:
    """Returns the states of the metrics of `compile`, updated from zeros with one shard."""
    metrics = compile_metrics_of(model)
    if metrics is None:
        return []
    zeros = [tf.zeros(variable.shape, variable.dtype) for variable in metrics.variables]
    with argmax_in_one_pass():
        return metrics.stateless_update_state(zeros, y, y_pred, sample_weight)


class LossPart(NamedTuple):
    """One loss over a shard.

    Attributes:
        total: scalar, summed over the shard, without the loss weight.
        divisor: the shard's part of the denominator: a scalar, `ROWS` for the number of rows, or
            None if the loss of a batch is the sum itself.
        scale: the loss weight, or None.
    """

    total: tf.Tensor
    divisor: Any
    scale: Any = None


def matched_losses(
    compile_loss: CompileLoss, y: Any, y_pred: Any, sample_weight: Any = None
) -> list[tuple[keras.losses.Loss, Any, Any, Any, Any]]:
    """Returns each built loss with its weight, and the labels, outputs and weights of its own.

    Keras itself matches them, in its order: it calls recorders in place of the losses.
    """
    found: list[tuple[keras.losses.Loss, Any, Any, Any, Any]] = []

    def recorder(loss: keras.losses.Loss, scale: Any) -> Any:
        def record(y_true: Any, y_pred: Any, sample_weight: Any = None) -> tf.Tensor:
            if keras.tree.is_nested(sample_weight):  # Of a single output whose labels are a list.
                (sample_weight,) = keras.tree.flatten(sample_weight)
            found.append((loss, scale, y_true, y_pred, sample_weight))
            return tf.zeros([])

        return record

    with_losses(compile_loss, recorder)(y, y_pred, sample_weight)
    return found


def loss_part(
    loss: keras.losses.Loss,
    scale: Any,
    y_true: Any,
    y_pred: Any,
    sample_weight: Any,
    rows: tf.Tensor,
) -> LossPart:
    """Returns a loss over a shard of so many rows, and the loss weight `scale`.

    It follows `keras.Loss.__call__` up to the division.

    Source: Keras 3.15, `keras/src/losses/loss.py`, `Loss.__call__` and `reduce_weighted_values`.
    """
    masks = [get_keras_mask(y_pred)]
    y_true, y_pred = keras.tree.map_structure(
        lambda value: ops.convert_to_tensor(value, dtype=loss.dtype), (y_true, y_pred)
    )
    with tf.name_scope(loss.name):
        values = loss.call(y_true, y_pred)
        masks = [mask for mask in (*masks, get_keras_mask(values)) if mask is not None]
        mask = None if not masks else masks[0] if len(masks) == 1 else masks[0] & masks[1]
        values = ops.convert_to_tensor(values, loss.dtype)
        check_weights(loss, values, sample_weight, mask)
        return LossPart(*reduced(loss, values, sample_weight, mask, rows), scale)


def check_weights(
    loss: keras.losses.Loss, values: tf.Tensor, sample_weight: Any, mask: tf.Tensor | None
) -> None:
    """Raises ValueError for weights that would be multiplied with other rows than their own.

    TensorFlow lines up the last axes of tensors of different ranks: a weight for each example would
    be taken for one of each pixel wherever a shard has as many rows as a row has pixels.
    """
    for kind, weights in (("masks", mask), ("sample or class weights", sample_weight)):
        if weights is None:
            continue
        others = values if mask is None or kind == "masks" else mask
        pair = squeeze_or_expand_to_same_rank(others, ops.convert_to_tensor(weights))
        if len(pair[0].shape) != len(pair[1].shape):
            raise ValueError(
                f"The loss '{loss.name}' has values of shape {others.shape}, and the {kind} are of "
                f"shape {weights.shape}. Both must have the same rank: give weights of the shape "
                "of the values, or [examples, 1, ...] for one weight of each example."
            )


def has_equal_rows(loss: keras.losses.Loss) -> bool:
    """Returns whether Keras wrote the loss, which then has equally many values for each row.

    A function of the user's may leave out some, such as those of an ignored label.
    """
    kind = type(loss)
    return is_of(kind, "keras.src.") and is_of(getattr(loss, "fn", kind), "keras.src.")


def reduced(
    loss: keras.losses.Loss,
    values: tf.Tensor,
    sample_weight: Any,
    mask: tf.Tensor | None,
    rows: tf.Tensor,
) -> tuple[tf.Tensor, Any]:
    """Returns weighted and masked values as a sum and what it is divided by, as in `LossPart`."""
    dtype, reduction = values.dtype, loss.reduction
    if sample_weight is not None:
        sample_weight = ops.convert_to_tensor(sample_weight, dtype)
    if mask is not None:
        mask = ops.convert_to_tensor(mask, dtype)
    weight = apply_mask(sample_weight, mask, dtype, "sum")
    if weight is not None:
        values, weight = squeeze_or_expand_to_same_rank(values, ops.cast(weight, dtype))
        values = values * weight
    total, size = tf.reduce_sum(values), tf.cast(tf.size(values), dtype)
    if reduction == "sum":
        return total, None
    if reduction == "mean_with_sample_weight" and weight is not None:
        return total, tf.reduce_sum(weight)
    if mask is not None:  # Keras weighs each valid entry with (entries / valid entries).
        return total * (tf.cast(tf.size(mask), dtype) / size), tf.reduce_sum(mask)
    if has_equal_rows(loss):  # Then its mean over all values is one over the rows.
        return total / size * ops.cast(rows, dtype), ROWS
    return total, size


def added_part(loss: tf.Tensor, rows: tf.Tensor) -> LossPart:
    """Returns what a layer added, or the regulariser of a weight, as Keras adds it up.

    It is a mean over the rows, or a constant, which enters once for each row; or their sum.
    """
    total = tf.reduce_sum(ops.cast(loss, rows.dtype))
    has_rows = loss.shape.rank != 0 and loss.shape[0] is None
    return LossPart(total, None) if has_rows else LossPart(total * rows, ROWS)


def combine(parts: Sequence[LossPart], rows: tf.Tensor) -> tuple[Any, Any]:
    """Returns all losses as (sums, weights) for a tower function.

    Losses that are divided by the rows make one pair. If there are no others, it is the only one,
    and the step needs no denominators before its backward pass.
    """
    by_rows, others = [], []
    for part in parts:
        total = ops.cast(part.total, rows.dtype)
        total = total if part.scale is None else total * part.scale
        if part.divisor is ROWS:
            by_rows.append(total)
        else:
            others.append((total, part.divisor))
    if not others:
        return tf.add_n(by_rows), rows
    pairs = ([(tf.add_n(by_rows), rows)] if by_rows else []) + others
    sums, weights = zip(*pairs, strict=True)
    return sums, weights


def updated_logs(
    model: keras.Model, results: StepResults | EvaluationResults
) -> dict[str, tf.Tensor]:
    """Adds the results of a batch to a model's metrics; returns its logs, scalars by name.

    As in Keras's own steps, the loss of a batch counts with its number of examples. With several
    losses, each has a mean over the batches besides, in which a smaller last batch counts like any
    other. Results are means of a step, or sums of an evaluation.
    """
    loss, rows, metrics = results.loss, results.weight, results.metrics
    if isinstance(results, EvaluationResults):
        loss, rows, metrics = batch_means(loss, rows, metrics)
    loss_tracker(model).update_state(loss, sample_weight=rows)
    losses, own = compile_loss_of(model), compile_metrics_of(model)
    trackers = [] if losses is None else losses.metrics
    for index, tracker in enumerate(trackers):
        tracker.update_state(metrics[LOSS.format(index)])
    states = [] if own is None else own.variables
    for index, state in enumerate(states):
        state.assign_add(metrics[STATE.format(index)])
    return model.get_metrics_result()


def batch_means(loss: Any, weight: Any, metrics: dict[str, Any]) -> tuple[Any, Any, dict[str, Any]]:
    """Returns a batch's loss, number of rows and metrics, from its sums over all towers."""
    means = {name: mean_metric(*pair) for name, pair in metrics.items()}
    if not isinstance(weight, Denominators):
        return mean_metric(loss, weight), weight, means
    pairs = zip(loss, weight.weights, strict=True)
    return tf.add_n([mean_metric(*pair) for pair in pairs]), weight.rows, means

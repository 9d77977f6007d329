"""What a compiled model may not hold: refused by name before anything is trained."""

from __future__ import annotations

import inspect
import json
import os
from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from towers.compiled.data import preprocesses
from towers.compiled.tower_function import ADDED_LOSSES, call
from towers.ground.private_apis import (
    ALL_OBJECTS,
    compile_loss_of,
    compile_metrics_of,
    flat_losses,
    flatten_layers,
    loss_tracker,
    metric_function,
)
from towers.saving.checkpoint_files import tensorflow_variable
from towers.variables.tower_scope import stateful_error

OWN_STEPS = {
    "fit": ("fit", "train_step", "make_train_function", "compute_loss", "compute_metrics"),
    "evaluate": ("evaluate", "test_step", "make_test_function", "compute_loss", "compute_metrics"),
    "predict": ("predict", "predict_step", "make_predict_function"),
}
REDUCTIONS = ("sum", "sum_over_batch_size", "mean", "mean_with_sample_weight")
# Functions of Keras that return no value for each example, or one that depends on the others.
OF_A_BATCH = ("circle", "dice", "tversky")
OF_A_SCALE = ("apply", "apply_gradients", "scale_loss", "check_finite")
TOLERANCE = 1e-3  # Far above the rounding of a sum, far below a wrong one.


def check_model(model: keras.Model, purpose: str, added_losses: str | None = None) -> None:
    """Raises ValueError for a model that towers cannot run as Keras would.

    Args:
        model: the model.
        purpose: `fit`, `evaluate` or `predict`.
        added_losses: as in `towers.fit`.
    """
    if not isinstance(model, keras.Model):
        raise ValueError(f"towers.{purpose} takes a Keras model. Received {model!r}.")
    for name in OWN_STEPS[purpose]:
        if is_overridden(model, name) and not (name == purpose and preprocesses(model)):
            raise ValueError(
                f"{type(model).__name__} overrides {name}(), which towers.{purpose} would pass by. "
                f"It takes a model that keeps Keras's own {name}(); write a tower function for "
                "this one (`towers.build_train_step`)."
            )
    check_no_strategy(model)
    if purpose == "predict":
        return
    if not model.compiled:
        raise ValueError(f"Call model.compile() before towers.{purpose}(model, ...).")
    if model.run_eagerly:
        raise ValueError(
            "The towers' step is a graph. Received a model that was compiled with "
            "run_eagerly=True; compile it without."
        )
    if purpose == "fit":
        check_own_scaling(model.optimizer)
    if added_losses not in (None, *ADDED_LOSSES):
        raise ValueError(
            f"added_losses must be one of {', '.join(ADDED_LOSSES)}, or None. "
            f"Received {added_losses!r}."
        )


def is_overridden(owner: Any, name: str, base: type = keras.Model) -> bool:
    """Returns whether a model or an optimizer has its own method instead of Keras's."""
    return getattr(type(owner), name) is not getattr(base, name) or name in vars(owner)


def check_own_scaling(optimizer: keras.optimizers.Optimizer) -> None:
    """Raises ValueError for an optimizer's own methods that the towers' update would pass by.

    With a loss scale, Keras calls the `apply` of the optimizer within, not its `apply_gradients`.
    """
    kinds = keras.optimizers
    methods = [(optimizer, "scale_loss", kinds.Optimizer)]
    if isinstance(optimizer, kinds.LossScaleOptimizer):
        methods = [(optimizer, name, kinds.LossScaleOptimizer) for name in OF_A_SCALE]
        methods.append((optimizer.inner_optimizer, "apply_gradients", kinds.Optimizer))
    for owner, name, base in methods:
        if is_overridden(owner, name, base):
            raise ValueError(
                f"{type(owner).__name__} overrides {name}(), which towers.fit does not call as "
                "Keras does. Override apply() or update_step() of an optimizer without a loss "
                "scale instead."
            )


def check_no_strategy(model: keras.Model) -> None:
    """Raises ValueError for variables of a `tf.distribute.Strategy`, which has one per replica."""
    variables = [*model.variables, *getattr(getattr(model, "optimizer", None), "variables", ())]
    values = tf.distribute.DistributedValues
    if any(isinstance(tensorflow_variable(variable), values) for variable in variables):
        raise ValueError(
            "Towers share plain variables. Received a model that was made or compiled in the scope "
            "of a tf.distribute.Strategy; make and compile it outside, and let `towers` name the "
            "devices."
        )


def check_alone() -> None:
    """Raises ValueError in a process that TF_CONFIG makes one of several."""
    try:
        cluster = json.loads(os.environ.get("TF_CONFIG") or "{}").get("cluster") or {}
        count = sum(map(len, cluster.values()))
    except (ValueError, TypeError, AttributeError):
        return
    if count > 1:
        raise ValueError(
            "towers.fit trains in one process, and would train another model in each. Received "
            f"TF_CONFIG with {count} processes; train a recipe with `towers launch`, or a tower "
            "function with build_train_step(..., processes=towers.processes.join_processes()), or "
            "remove TF_CONFIG to train in this process alone."
        )


def check_counts(seed: int, **steps: int | None) -> None:
    """Raises ValueError for a seed below 0, or numbers of steps below 1."""
    if seed < 0:
        raise ValueError(f"seed must be at least 0. Received {seed}.")
    for name, number in steps.items():
        if number is not None and number < 1:
            raise ValueError(f"{name} must be at least 1, or None. Received {number}.")


def check_built(model: keras.Model, num_parts: int) -> None:
    """Raises ValueError for losses and metrics of a built model that towers cannot add.

    Args:
        model: the model.
        num_parts: into which a batch is cut, over all towers.
    """
    check_no_strategy(model)
    losses = compile_loss_of(model)
    for loss in [] if losses is None else flat_losses(losses):
        check_loss(loss.loss, num_parts)
    if any(getattr(layer, "stateful", False) for layer in flatten_layers(model)):
        raise stateful_error()
    known = [loss_tracker(model), compile_metrics_of(model)]
    known += [] if losses is None else losses.metrics
    others = [metric for metric in model.metrics if not any(metric is one for one in known)]
    if others:
        raise ValueError(
            "Towers add the metrics that were passed to model.compile() only. Received "
            f"{', '.join(repr(metric.name) for metric in others)}, which the model or one of its "
            "layers owns; pass them to compile(), or leave them out."
        )


def check_loss(loss: keras.losses.Loss, num_parts: int) -> None:
    """Raises ValueError for a loss whose denominator is unknown, or of pairs of examples."""
    function = getattr(loss, "fn", None)  # Keras's losses have one.
    if getattr(function, "__name__", "") == "circle" and num_parts > 1:
        raise ValueError(
            f"The loss '{loss.name}' compares the examples of a batch with each other, so that the "
            f"batch must not be cut. Received {num_parts} parts; use towers=1, accumulate=1."
        )
    if type(loss).__call__ is not keras.losses.Loss.__call__:
        raise ValueError(
            f"The loss '{loss.name}' of type {type(loss).__name__} overrides __call__(), so towers "
            "cannot know what it divides by. Override call() and return a value for each example."
        )
    if loss.reduction not in REDUCTIONS:
        raise ValueError(
            f"The loss '{loss.name}' must have one of the reductions {', '.join(REDUCTIONS)}. "
            f"Received {loss.reduction!r}."
        )


def check_metrics(
    model: keras.Model, first_batch: Callable[[], Any], has_flat_labels: bool
) -> None:
    """Raises ValueError for a metric that cannot be added over the shards of a batch.

    Most of Keras's own metrics can. Any other is tried: on the rows of a first batch, the states of
    the two halves must add up to the state of the whole, and to that of one half after the other.

    Args:
        model: the built model.
        first_batch: returns the first batch as tensors.
        has_flat_labels: whether some labels are [rows].
    """
    metrics = compile_metrics_of(model)
    owners = [] if metrics is None else [one for one in metrics.metrics for _ in one.variables]
    adds = {id(one): is_of_keras(one) and is_by_rows(one, has_flat_labels) for one in owners}
    if all(adds.values()):
        return
    x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(several(first_batch()))
    outputs = call(model, x, training=False)
    zeros = [tf.zeros(variable.shape, variable.dtype) for variable in metrics.variables]

    def update(states: Sequence[tf.Tensor], start: int, stop: int) -> Sequence[tf.Tensor]:
        rows = (take(part, start, stop) for part in (y, outputs, sample_weight))
        return metrics.stateless_update_state(states, *rows)

    size = tf.nest.flatten(x)[0].shape[0]
    middle = size // 2 + 1 if size > 2 else 1  # Halves of different sizes tell more.
    whole, first = update(zeros, 0, size), update(zeros, 0, middle)
    second, after = update(zeros, middle, size), update(first, middle, size)
    for owner, *states in zip(owners, whole, first, second, after, strict=True):
        if not adds[id(owner)] and not adds_up(*map(np.asarray, states)):
            raise ValueError(
                f"The metric '{owner.name}' of type {type(owner).__name__} cannot be added over "
                "the shards of a batch: the states of two halves do not add up to the state of "
                "the whole. Let a function return a value for each example instead of a mean over "
                "them (keras.ops.mean(..., axis=-1)), let a metric's variables be sums, and take a "
                "metric of Keras in place of a loss (keras.metrics.MeanSquaredError)."
            )


def is_of_keras(metric: keras.metrics.Metric) -> bool:
    """Returns whether Keras wrote the metric, and the function by rows that it wraps."""
    if type(metric) is keras.metrics.MeanMetricWrapper:
        fn, _ = metric_function(metric)
        by_rows = inspect.isfunction(fn) and fn.__name__ not in OF_A_BATCH
        return by_rows and fn.__module__.startswith("keras.src.")
    return type(metric) in ALL_OBJECTS


def is_by_rows(metric: keras.metrics.Metric, has_flat_labels: bool) -> bool:
    """Returns whether a metric of Keras's surely has a value for each row.

    It has none if it reduces another axis than the last one. Some, such as `Hinge`, compare labels
    [rows] with each row of the outputs [rows, 1].
    """
    if not isinstance(metric, keras.metrics.MeanMetricWrapper):
        return True
    fn, options = metric_function(metric)
    if options.get("axis", -1) != -1:
        return False
    name = getattr(fn, "__name__", "")
    return not has_flat_labels or "accuracy" in name or "sparse" in name


def adds_up(whole: np.ndarray, first: np.ndarray, second: np.ndarray, after: np.ndarray) -> bool:
    """Returns whether the states of two halves add up, in either way."""
    size = max(np.abs(whole).max(initial=0), np.abs(first).max(initial=0), 1e-30)
    errors = [np.abs(first + second - other).max(initial=0) for other in (whole, after)]
    return bool(max(errors) <= TOLERANCE * size)


def several(batch: Any) -> Any:
    """Returns a batch of several rows: a single one is repeated."""

    def repeat(part: tf.Tensor) -> tf.Tensor:
        return tf.concat([part, part, part], axis=0) if part.shape[0] == 1 else part

    return tf.nest.map_structure(repeat, batch)


def take(nest: Any, start: int, stop: int) -> Any:
    """Returns rows of all tensors; None stays None."""
    return keras.tree.map_structure(lambda part: None if part is None else part[start:stop], nest)

"""The logs of a compiled model, out of the sums over all towers."""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf

from towers.compiled.tower_function import LOSS, STATE
from towers.ground.private_apis import compile_loss_of, compile_metrics_of, loss_tracker
from towers.step.results import EvaluationResults, StepResults, mean_metric
from towers.step.sums import Denominators


def updated_logs(
    model: keras.Model, results: StepResults | EvaluationResults
) -> dict[str, tf.Tensor]:
    """Adds the results of a batch to a model's metrics; returns its logs, scalars by name.

    As in Keras's own steps, the loss of a batch counts with its number of examples. With several
    losses, each has a mean over the batches besides, in which a smaller last batch counts like any
    other.

    Args:
        model: a compiled model that is built.
        results: means of a step, or sums of an evaluation.
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

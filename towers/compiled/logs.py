"""The logs of a compiled model, out of the sums over all towers; the callbacks that hear them."""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf

from towers.compiled.kept import kept
from towers.compiled.tower_function import LOSS, STATE
from towers.ground.private_apis import compile_loss_of, compile_metrics_of, loss_tracker
from towers.step.results import EvaluationResults, StepResults, mean_metric
from towers.step.sums import Denominators


class Logs:
    """Adds the results of batches to the metrics of a model, as Keras's own steps do.

    The loss of a batch counts with its number of examples. With several losses, each has a mean
    over the batches besides, in which a smaller last batch counts like any other.

    Args:
        model: a compiled model that is built.
    """

    def __init__(self, model: keras.Model):
        self._model = model
        self._add_means = tf.function(self._add, autograph=False)
        self._add_sums = tf.function(lambda *sums: self._add(*batch_means(*sums)), autograph=False)

    def add(self, results: StepResults | EvaluationResults) -> dict[str, tf.Tensor]:
        """Returns the logs after one more batch, scalars by name."""
        function = self._add_sums if isinstance(results, EvaluationResults) else self._add_means
        return function(results.loss, results.weight, results.metrics)

    def _add(self, loss: tf.Tensor, rows: tf.Tensor, metrics: dict[str, Any]) -> dict[str, Any]:
        model = self._model
        loss_tracker(model).update_state(loss, sample_weight=rows)
        losses, own = compile_loss_of(model), compile_metrics_of(model)
        trackers = [] if losses is None else losses.metrics
        for index, tracker in enumerate(trackers):
            tracker.update_state(metrics[LOSS.format(index)])
        states = [] if own is None else own.variables
        for index, state in enumerate(states):
            state.assign_add(metrics[STATE.format(index)])
        return model.get_metrics_result()


def kept_logs(model: keras.Model) -> Logs:
    """Returns the logs of a model, whose traces it keeps."""
    return kept(model, ("logs",), lambda: Logs(model))


def batch_means(loss: Any, weight: Any, metrics: dict[str, Any]) -> tuple[Any, Any, dict[str, Any]]:
    """Returns a batch's loss, number of rows and metrics, from its sums over all towers."""
    means = {name: mean_metric(*pair) for name, pair in metrics.items()}
    if not isinstance(weight, Denominators):
        return mean_metric(loss, weight), weight, means
    pairs = zip(loss, weight.weights, strict=True)
    return tf.add_n([mean_metric(*pair) for pair in pairs]), weight.rows, means


def callback_list(
    model: keras.Model,
    callbacks: Any,
    verbose: Any,
    steps: int | None,
    epochs: int = 1,
    *,
    history: bool = False,
) -> keras.callbacks.CallbackList:
    """Returns the callbacks with a progress bar; a list that is one already as it is.

    Args:
        model: the model that they may change.
        callbacks, verbose: as in `keras.Model.fit`.
        steps: the number of batches in an epoch; None if it is unknown.
        epochs: the number of epochs.
        history: whether a `keras.callbacks.History` is among them.
    """
    if isinstance(callbacks, keras.callbacks.CallbackList):
        return callbacks
    return keras.callbacks.CallbackList(
        callbacks,
        add_history=history,
        add_progbar=verbose != 0,
        verbose=verbose,
        epochs=epochs,
        steps=steps,
        model=model,
    )

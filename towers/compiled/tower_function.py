"""The tower function of a compiled model: what `compile` was told, as sums over a shard."""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf

from towers.compiled.losses import added_losses, as_pair, combine, compiled_losses
from towers.ground.private_apis import compile_loss_of, compile_metrics_of, takes_training
from towers.step.tower_function import TowerFn

LOSS, STATE = "compiled_loss_{}", "compiled_metric_{}"


def compiled_tower_fn(
    model: keras.Model, *, training: bool, kind_of_added_losses: str | None = None
) -> TowerFn:
    """Returns the tower function of a compiled model that is built.

    Its metrics are each loss of `compile` (by the name `LOSS`), and the states of the metrics of
    `compile` (by the name `STATE`), which begin with zeros in every shard.

    Args:
        model: the model.
        training: whether it is called in training mode.
        kind_of_added_losses: `mean` or `sum`, what layers add with `add_loss`; None: unknown.
    """

    def tower_fn(batch: Any) -> tuple[Any, Any, dict[str, Any]]:
        x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(batch)
        y_pred = call(model, x, training=training)
        rows = tf.cast(tf.shape(tf.nest.flatten(x)[0])[0], keras.config.floatx())
        parts = []
        if compile_loss_of(model) is not None:
            parts = compiled_losses(compile_loss_of(model), y, y_pred, sample_weight, rows)
        metrics = {LOSS.format(index): as_pair(part, rows) for index, part in enumerate(parts)}
        states = metric_states(model, y, y_pred, sample_weight)
        metrics |= {STATE.format(index): (state, None) for index, state in enumerate(states)}
        parts += added_losses(model, kind_of_added_losses, rows)
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
    return metrics.stateless_update_state(zeros, y, y_pred, sample_weight)

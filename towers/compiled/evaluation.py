"""Evaluation and prediction of a compiled model on towers."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import keras
import tensorflow as tf

from towers.batches.feed import check_end, open_feed
from towers.compiled.checks import NeedsLayersError, check_model, check_own_code, has_own
from towers.compiled.data import Data, cut_if_arrays, read_samples, shards_of
from towers.compiled.epoch_batches import EpochData
from towers.compiled.input_errors import in_one_sentence
from towers.compiled.kept import kept
from towers.compiled.limits import limited_steps
from towers.compiled.logs import callback_list, updated_logs
from towers.compiled.own_code import call_own, layer_calls
from towers.compiled.setting import key_of, place, prepare
from towers.compiled.tower_function import compiled_tower_fn
from towers.devices.placement import Placement
from towers.ground.private_apis import flatten_logs, pythonify_logs
from towers.step.evaluation import EvaluationStep, build_evaluation_step

REMEDY = "pass validation_steps, or the steps of evaluate"


@in_one_sentence()
def evaluate(
    model: keras.Model,
    x: Any = None,
    y: Any = None,
    batch_size: int | None = None,
    verbose: Any = "auto",
    sample_weight: Any = None,
    steps: int | None = None,
    callbacks: Any = None,
    return_dict: bool = False,
    *,
    towers: int | Sequence[str] | None = None,
) -> Any:
    """Returns the loss and the metrics of a compiled model over a data set.

    Args:
        model: a compiled Keras model.
        x, y, batch_size, verbose, sample_weight, steps, callbacks, return_dict: as in
            `keras.Model.evaluate`.
        towers: as in `towers.fit`.

    Raises:
        ValueError: an argument is wrong, or the data is empty.
    """
    check_model(model, "evaluate")
    placement = place(model, towers)
    calls = layer_calls(model, placement.devices, "sum", quiet=verbose == 0)
    if has_own(model, "evaluate"):
        return call_own(
            model, "evaluate", calls, x=x, y=y, batch_size=batch_size, verbose=verbose,
            sample_weight=sample_weight, steps=steps, callbacks=callbacks, return_dict=return_dict,
        )  # fmt: skip
    limit = limited_steps(steps)
    data = read_samples(model, x, y, sample_weight, batch_size=batch_size, steps=limit)
    heard = callback_list(model, callbacks, verbose, limit or data.num_batches)
    try:
        check_own_code(model, "evaluate")
        logs = Evaluation(model, placement, data, limit).run(heard)
    except NeedsLayersError:
        own = EpochData(data, limit)
        with calls.scope():
            logs = keras.Model.evaluate(
                model, own, steps=own.limit, callbacks=heard, return_dict=True
            )
    return logs if return_dict else flatten_logs(model, logs)


class Evaluation:
    """A repeated evaluation of a compiled model, such as that on validation data.

    Args:
        model: the model; it is built here.
        placement: the devices of the towers.
        data: the data.
        steps: the number of batches to take, or None.
    """

    def __init__(
        self,
        model: keras.Model,
        placement: Placement,
        data: Data,
        steps: int | None,
    ):
        self._model, self._placement, self._data = model, placement, data
        prepare(model, placement, data)
        num_towers = len(placement.devices)
        shards = pass_of(cut_if_arrays(data, num_towers), steps, REMEDY)
        self._shards = shards_of(shards, num_towers)

    def build(self) -> EvaluationStep:
        """Returns the step, which is built by the first call."""
        return kept(self._model, ("evaluate", self._placement, key_of(self._data)), self._make)

    def _make(self) -> EvaluationStep:
        model, batches = self._model, self._data.one_pass(0)
        tower_fn = compiled_tower_fn(model, training=False)
        also = partial(updated_logs, model)
        return build_evaluation_step(tower_fn, model, self._placement, batches, also=also)

    def run(self, callbacks: keras.callbacks.CallbackList) -> dict[str, float]:
        """Returns the loss and the metrics by name; the callbacks hear of every batch."""
        model, logs = self._model, {}
        callbacks.on_test_begin()
        model.reset_metrics()
        model.stop_evaluating = False
        self._data.begin()
        with open_feed(self._shards, self._placement.devices) as feed:
            for number, shards in enumerate(feed):
                callbacks.on_test_batch_begin(number)
                step = self.build()
                step(shards, number)
                logs = step.also
                callbacks.on_test_batch_end(number, logs)
                if model.stop_evaluating:
                    break
        if not logs:
            raise ValueError("There is nothing to evaluate: the data has no examples.")
        floats = pythonify_logs(logs)
        callbacks.on_test_end(floats)
        return floats


def predict(
    model: keras.Model,
    x: Any,
    batch_size: int | None = None,
    verbose: Any = "auto",
    steps: int | None = None,
    callbacks: Any = None,
    *,
    towers: int | Sequence[str] | None = None,
) -> Any:
    """Returns a model's outputs as NumPy arrays, computed by a tower on each device.

    Args:
        model: a Keras model; it need not be compiled.
        x, batch_size, verbose, steps, callbacks: as in `keras.Model.predict`.
        towers: as in `towers.fit`.

    Raises:
        ValueError: an argument is wrong.
    """
    check_model(model, "predict")
    if isinstance(x, tf.data.Dataset):
        check_end(x, steps, "pass steps")
    calls = layer_calls(model, place(model, towers).devices, "sum", quiet=verbose == 0)
    return call_own(
        model, "predict", calls, x=x, batch_size=batch_size, verbose=verbose, steps=steps,
        callbacks=callbacks,
    )  # fmt: skip


def pass_of(data: Data, steps: int | None, remedy: str) -> tf.data.Dataset:
    """Returns a pass over the data, or its first batches; ValueError if it would not end."""
    batches = data.one_pass(0)
    check_end(batches, steps, remedy)
    return batches if steps is None else batches.take(steps)

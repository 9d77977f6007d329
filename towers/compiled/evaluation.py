"""Evaluation and prediction of a compiled model on towers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import keras
import tensorflow as tf

from towers.batches.feed import check_end, open_feed
from towers.batches.shards import any_number_of_rows
from towers.compiled.checks import check_model
from towers.compiled.data import Data, cut_if_arrays, read_samples, shards_of
from towers.compiled.input_errors import in_one_sentence
from towers.compiled.kept import kept
from towers.compiled.limits import limited_steps
from towers.compiled.logs import callback_list, updated_logs
from towers.compiled.setting import key_of, place, prepare
from towers.compiled.tensors import present, restored
from towers.compiled.tower_function import call, compiled_tower_fn
from towers.devices.placement import Placement
from towers.ground.private_apis import (
    convert_to_np_if_not_ragged,
    flatten_logs,
    potentially_ragged_concat,
    pythonify_logs,
)
from towers.other_steps.parallel import parallel
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
    added_losses: str | None = None,
) -> Any:
    """Returns the loss and the metrics of a compiled model over a data set.

    Args:
        model: a compiled Keras model.
        x, y, batch_size, verbose, sample_weight, steps, callbacks, return_dict: as in
            `keras.Model.evaluate`.
        towers, added_losses: as in `towers.fit`.

    Raises:
        ValueError: the model holds something that towers cannot add, or the data is empty.
    """
    check_model(model, "evaluate", added_losses)
    steps = limited_steps(steps)
    data = read_samples(model, x, y, sample_weight, batch_size=batch_size, steps=steps)
    evaluation = Evaluation(model, place(model, towers), data, steps, added_losses)
    logs = evaluation.run(callback_list(model, callbacks, verbose, steps or data.num_batches))
    return logs if return_dict else flatten_logs(model, logs)


class Evaluation:
    """A repeated evaluation of a compiled model, such as that on validation data.

    Args:
        model: the model; it is built here.
        placement: the devices of the towers.
        data: the data.
        steps: the number of batches to take, or None.
        added_losses: as in `towers.fit`.
    """

    def __init__(
        self,
        model: keras.Model,
        placement: Placement,
        data: Data,
        steps: int | None,
        added_losses: str | None,
    ):
        self._model, self._placement, self._added_losses = model, placement, added_losses
        self._data = data
        num_towers = len(placement.devices)
        shards = pass_of(cut_if_arrays(data, num_towers), steps, REMEDY)
        self._shards = shards_of(shards, num_towers)
        prepare(model, placement, data)

    def build(self) -> EvaluationStep:
        """Returns the step, which is built by the first call."""
        key = ("evaluate", self._placement, self._added_losses, key_of(self._data))
        return kept(self._model, key, self._make)

    def _make(self) -> EvaluationStep:
        model, spec, kind = self._model, self._data.spec, self._added_losses
        tower_fn = compiled_tower_fn(model, spec, training=False, kind_of_added_losses=kind)
        return build_evaluation_step(
            tower_fn,
            model,
            self._placement,
            self._data.one_pass(0),
            also=partial(updated_logs, model),
        )

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


@in_one_sentence()
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
        ValueError: the model predicts in a way of its own, or the data has no examples.
    """
    check_model(model, "predict")
    steps = limited_steps(steps)
    placement = place(model, towers)
    data = read_samples(model, x, batch_size=batch_size, steps=steps)
    batches = pass_of(data, steps, "pass steps")
    callbacks = callback_list(model, callbacks, verbose, steps or data.num_batches)
    outputs_of = kept(
        model, ("predict", placement, key_of(data)), lambda: prediction(model, placement, data)
    )
    outputs = list(predict_batches(model, outputs_of, batches, callbacks))
    if not outputs:
        raise ValueError("There is nothing to predict: the data has no examples.")
    joined = keras.tree.map_structure_up_to(
        outputs[0], lambda *parts: potentially_ragged_concat(list(parts)), *outputs
    )
    return keras.tree.map_structure(convert_to_np_if_not_ragged, joined)


def pass_of(data: Data, steps: int | None, remedy: str) -> tf.data.Dataset:
    """Returns a pass over the data, or its first batches; ValueError if it would not end."""
    batches = data.one_pass(0)
    check_end(batches, steps, remedy)
    return batches if steps is None else batches.take(steps)


def prediction(model: keras.Model, placement: Placement, data: Data) -> Callable[[Any], Any]:
    """Returns the function of a batch that returns the model's outputs; it is traced once.

    Outputs without rows cannot be put together from shards: then the first tower takes the batch
    as it is.
    """

    def run(batch: Any) -> Any:
        x, _, _ = keras.utils.unpack_x_y_sample_weight(restored(data.spec, batch))
        return call(model, x, training=False)

    if not model.built:
        with placement.scope():
            run(present(data.first_batch()))
    devices = placement.devices
    specs = [tf.nest.map_structure(any_number_of_rows, present(data.spec))]
    if len(devices) > 1:
        whole = tf.function(run, autograph=False).get_concrete_function(*specs)
        if not all(map(has_rows, tf.nest.flatten(whole.structured_outputs))):
            devices = devices[:1]

    @tf.function(input_signature=specs, autograph=False)
    def outputs_of(batch: Any) -> Any:
        if len(devices) > 1:
            return parallel(run, devices, variables=model, batch=batch)
        with tf.device(devices[0]):
            return run(batch)

    return outputs_of


def has_rows(output: tf.Tensor) -> bool:
    """Returns whether an output has as many rows as a batch, of which any number was traced."""
    return output.shape.rank is None or (output.shape.rank > 0 and output.shape[0] is None)


def predict_batches(
    model: keras.Model,
    outputs_of: Callable[[Any], Any],
    batches: tf.data.Dataset,
    callbacks: keras.callbacks.CallbackList,
) -> Any:
    """Yields the outputs of each batch; the callbacks hear of it."""
    callbacks.on_predict_begin()
    model.stop_predicting = False
    for number, batch in enumerate(batches):
        callbacks.on_predict_batch_begin(number)
        outputs = outputs_of(batch)
        yield outputs
        callbacks.on_predict_batch_end(number, {"outputs": outputs})
        if model.stop_predicting:
            break
    callbacks.on_predict_end()

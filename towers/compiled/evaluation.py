"""Evaluation and prediction of a compiled model on towers."""

from __future__ import annotations

import types
from collections.abc import Sequence
from functools import partial
from typing import Any

import keras
import tensorflow as tf

from towers.batches.calls import in_calls
from towers.batches.feed import check_end, open_feed
from towers.compiled.checks import (
    NeedsLayersError,
    check_model,
    check_own_code,
    has_own,
    own_method,
)
from towers.compiled.data import Data, preprocesses, read_data, read_samples
from towers.compiled.epoch_batches import EpochData
from towers.compiled.input_errors import in_one_sentence
from towers.compiled.kept import kept
from towers.compiled.limits import limited_steps, steps_per_call
from towers.compiled.logs import callback_list, updated_logs
from towers.compiled.own_code import call_own, layer_calls
from towers.compiled.setting import key_of, place, prepare
from towers.compiled.together import Together, join
from towers.compiled.tower_function import compiled_tower_fn
from towers.devices.placement import Placement
from towers.ground.private_apis import flatten_logs, pythonify_logs
from towers.processes.agreement import check_variables
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
    data: str = "same",
    alone: bool = False,
) -> Any:
    """Returns the loss and the metrics of a compiled model over a data set.

    Args:
        model: a compiled Keras model.
        x, y, batch_size, verbose, sample_weight, steps, callbacks, return_dict: as in
            `keras.Model.evaluate`.
        towers, data, alone: as in `towers.fit`.

    Raises:
        ValueError: an argument is wrong, or the data is empty.
    """
    together = join(data, alone=alone)
    check_model(model, "evaluate")
    placement = place(model, towers)
    calls = layer_calls(model, placement.devices, "sum", quiet=verbose == 0)
    callbacks, verbose = together.callbacks(callbacks), together.verbose(verbose)
    if has_own(model, "evaluate"):
        if together.owns_data:
            together.check_step(own_method(model, "evaluate"))
        return call_own(
            model, "evaluate", calls, x=x, y=y, batch_size=batch_size, verbose=verbose,
            sample_weight=sample_weight, steps=steps, callbacks=callbacks, return_dict=return_dict,
        )  # fmt: skip
    limit, hear = limited_steps(steps), partial(callback_list, model, callbacks, verbose)
    read = read_samples(model, x, y, sample_weight, batch_size=batch_size, steps=limit)
    try:
        check_own_code(model, "evaluate")
        evaluation = Evaluation(model, placement, together, read, limit)
        check_variables(together.processes, {"variables": model.variables})
        logs = evaluation.run(hear(limit or evaluation.num_batches))
    except NeedsLayersError as reason:
        if together.owns_data:
            together.check_step(reason)
        own, heard = EpochData(read, limit), hear(limit or read.num_batches)
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
        together: the processes that evaluate it.
        data: the data.
        steps: the number of batches to take, or None.

    Attributes:
        num_batches: the number of batches in the data; None if it is unknown or there is no end.
    """

    def __init__(
        self,
        model: keras.Model,
        placement: Placement,
        together: Together,
        data: Data,
        steps: int | None,
    ):
        self._model, self._placement, self._processes = model, placement, together.processes
        prepare(model, placement, data)
        self._data = together.shards(data, len(placement.devices), steps)
        self.num_batches = self._data.num_batches
        self._shards = pass_of(self._data, steps, REMEDY)

    def build(self) -> EvaluationStep:
        """Returns the step, which is built by the first call."""
        key = ("evaluate", self._placement, key_of(self._data), self._processes.count)
        return kept(self._model, key, self._make)

    def _make(self) -> EvaluationStep:
        model, batches = self._model, self._data.data.one_pass(0)
        tower_fn = compiled_tower_fn(model, training=False)
        return build_evaluation_step(
            tower_fn, model, self._placement, batches,
            also=partial(updated_logs, model), processes=self._processes,
        )  # fmt: skip

    def run(self, callbacks: keras.callbacks.CallbackList) -> dict[str, float]:
        """Returns the loss and the metrics by name; the callbacks hear of every batch."""
        model, logs = self._model, {}
        callbacks.on_test_begin()
        model.reset_metrics()
        model.stop_evaluating = False
        self._data.begin()
        size, number = steps_per_call(model), 0
        batches = self._shards if size == 1 else in_calls(self._shards, size)
        with open_feed(batches, self._placement.devices) as feed:
            for shards in feed:
                callbacks.on_test_batch_begin(number)
                step = self.build()
                step(shards, number) if size == 1 else step.several(shards, number)
                logs, number = step.also, number + size
                callbacks.on_test_batch_end(number - 1, logs)
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
    data: str = "same",
    alone: bool = False,
) -> Any:
    """Returns a model's outputs as NumPy arrays, computed by a tower on each device.

    Of several processes each computes a part of the batches, and returns all outputs.

    Args:
        model: a Keras model; it need not be compiled.
        x, batch_size, verbose, steps, callbacks: as in `keras.Model.predict`.
        towers, data, alone: as in `towers.fit`; with parts of their own, each returns its own.

    Raises:
        ValueError: an argument is wrong.
    """
    together = join(data, alone=alone)
    check_model(model, "predict")
    if isinstance(x, tf.data.Dataset):
        check_end(x, steps, "pass steps")
    calls = layer_calls(model, place(model, towers).devices, "sum", quiet=verbose == 0)
    hearing = {"callbacks": together.callbacks(callbacks), "verbose": together.verbose(verbose)}
    outputs = partial(call_own, model, "predict", calls, **hearing)
    shares = together.is_several and not together.owns_data and not preprocesses(model)
    if shares and not isinstance(x, types.GeneratorType):
        check_variables(together.processes, {"variables": model.variables})
        read = read_data(x, batch_size=batch_size, steps=steps)
        if read.num_batches is not None:
            count = min(read.num_batches, steps or read.num_batches)
            return together.by_parts(lambda part: outputs(x=part), read, count)
    return outputs(x=x, batch_size=batch_size, steps=steps)


def pass_of(data: Data, steps: int | None, remedy: str) -> tf.data.Dataset:
    """Returns a pass over the data, or its first batches; ValueError if it would not end."""
    batches = data.one_pass(0)
    check_end(batches, steps, remedy)
    return batches if steps is None else batches.take(steps)

"""Evaluation and prediction of a compiled model on towers."""

from __future__ import annotations

import contextlib
import types
from collections.abc import Sequence
from functools import partial
from typing import Any

import keras
import tensorflow as tf

from towers.batches.feed import check_end
from towers.compiled.checks import (
    NeedsLayersError,
    check_labels,
    check_model,
    check_own_code,
    has_own,
    is_overridden,
    keeping_rows,
    own_method,
)
from towers.compiled.data import check_given, read_data, read_samples
from towers.compiled.described import described, described_layers
from towers.compiled.epoch_batches import EpochData, ends_quietly
from towers.compiled.functions import OnTowers
from towers.compiled.input_errors import in_one_sentence
from towers.compiled.own_code import call_own, layer_calls
from towers.compiled.setting import limited, place
from towers.compiled.together import join
from towers.processes.agreement import check_variables


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
    check_model(model, "evaluate", batch_size=batch_size, steps=steps, callbacks=callbacks)
    together, placement = join(data, alone=alone), place(model, towers)
    calls = layer_calls(model, placement.devices, quiet=verbose == 0)
    callbacks, verbose = together.callbacks(callbacks), together.verbose(verbose)
    if has_own(model, "evaluate"):
        if together.owns_data:
            together.check_step(own_method(model, "evaluate"))
        return call_own(
            model, "evaluate", calls, x=x, y=y, batch_size=batch_size, verbose=verbose,
            sample_weight=sample_weight, steps=steps, callbacks=callbacks, return_dict=return_dict,
        )  # fmt: skip
    limit = limited("steps_per_epoch", steps)
    read = read_samples(model, x, y, sample_weight, batch_size=batch_size, steps=limit)
    check_labels(model, read)
    own = EpochData(read, limit, remedy="pass steps")
    scope = calls.scope
    try:
        check_own_code(model, "evaluate")
        way = OnTowers(model, placement, together)
        own, scope = way.evaluation(own), way.scope
        together.check(partial(described, model))
        check_variables(together.processes, {"variables": model.weights})
    except NeedsLayersError as reason:
        if together.owns_data:
            together.check_step(reason)
    with scope(), contextlib.closing(own), ends_quietly():
        return keras.Model.evaluate(
            model, own, verbose=verbose, steps=own.limit, callbacks=callbacks,
            return_dict=return_dict,
        )  # fmt: skip


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
    check_model(model, "predict", batch_size=batch_size, steps=steps, callbacks=callbacks)
    if not is_overridden(model, "predict"):
        check_given(x)
    together = join(data, alone=alone)
    if isinstance(x, tf.data.Dataset):
        check_end(x, steps, "pass steps")
    calls = layer_calls(model, place(model, towers).devices, quiet=verbose == 0)
    hearing = {"callbacks": together.callbacks(callbacks), "verbose": together.verbose(verbose)}
    outputs = partial(call_own, model, "predict", calls, **hearing)
    shares = together.is_several and not together.owns_data and not is_overridden(model, "predict")
    if shares and not keeping_rows(model) and not isinstance(x, types.GeneratorType):
        together.check(partial(described_layers, model))
        check_variables(together.processes, {"variables": model.weights})
        read = read_data(x, batch_size=batch_size, steps=steps)
        if read.num_batches is not None:
            count = min(read.num_batches, steps or read.num_batches)
            return together.by_parts(lambda part: outputs(x=part), read, count)
    return outputs(x=x, batch_size=batch_size, steps=steps)

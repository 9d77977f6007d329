"""The setting of a compiled model: its devices, its building, and what Keras limits."""

from __future__ import annotations

import functools
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import keras
import numpy as np
import tensorflow as tf

from towers.batches.shards import any_number_of_rows
from towers.compiled.apart import check_rows_apart
from towers.compiled.checks import (
    NeedsLayersError,
    check_built,
    check_listed,
    check_metrics,
    check_no_strategy,
)
from towers.compiled.data import Data
from towers.compiled.kept import kept
from towers.devices.kernels import levels_to_caller
from towers.devices.placement import Placement, check_present, tower_devices
from towers.ground.host import HOST
from towers.ground.private_apis import (
    build_symbolically,
    compute_output_spec,
    flatten_layers,
    takes_training,
)
from towers.layers.held import counts_kept, switches_of
from towers.layers.plain import needs_trace
from towers.variables.tower_scope import is_of

AUTO = 16  # Steps of a call: what is left of the host's time for a call is small.
Number = TypeVar("Number", int, int | None)


def place(
    model: keras.Model,
    towers: int | Sequence[str] | None,
    parameters: str = "auto",
    exchange: str = "packs",
) -> Placement:
    """Returns the placement of a model that exists already.

    Args:
        towers: as in `towers.fit`.
        parameters, exchange: as in `Placement`; `auto` is where the variables are, or will be.

    Raises:
        ValueError: there are no such devices, or the variables are somewhere else.
    """
    devices, home = tower_devices(towers), home_of(model)
    if parameters == "auto" and exchange == "packs":  # A later call finds the variables there.
        parameters = "cpu" if (home or Placement(devices).device) == HOST else "tower0"
    placement = Placement(devices, parameters, exchange)
    check_present(name for group in placement.groups for name in group)
    if home not in (None, placement.device):
        raise ValueError(
            f"With parameters={placement.parameters!r} the variables belong on {placement.device}. "
            f"Received a model whose variables are on {home}; make and compile it under "
            f"`with tf.device({placement.device!r}):`, or choose other towers or parameters."
        )
    return placement


def home_of(model: keras.Model) -> str | None:
    """Returns the device that holds most of the model's weights; None for a model without any."""
    num_bytes: Counter[str] = Counter()
    for variable in model.variables:
        if variable.value.dtype.is_floating:  # Seeds and counters may be elsewhere.
            device = tf.DeviceSpec.from_string(variable.value.device)
            name = f"/{device.device_type or 'CPU'}:{device.device_index or 0}"
            num_bytes[name] += variable.value.dtype.size * int(np.prod(variable.shape))
    return max(num_bytes, key=lambda name: num_bytes[name]) if num_bytes else None


def prepare(
    model: keras.Model,
    placement: Placement,
    data: Data,
    *,
    training: bool = True,
    to_trace: bool = False,
) -> None:
    """Builds a model for its data, and checks it.

    Args:
        training: whether it is called as in a training; Keras's own layers are checked so anyway.
        to_trace: whether it is traced next, as it is now: it is checked again if it has changed.

    Raises:
        NeedsLayersError: it holds a loss or a metric that towers cannot add, or couples rows.
    """
    key = (placement, key_of(data), model.optimizer)
    build_it = functools.partial(build, model, data.spec)
    batch, switches = kept(
        model, ("built", *key), lambda: (within(placement, build_it), switches_of(model))
    )
    found = batch
    if not isinstance(batch, str):
        training = training or not needs_trace(model, "sum")
        devices = placement.devices
        check = functools.partial(check_built_model, model, devices, data, batch, training)
        now = switches_of(model) if to_trace else switches
        with counts_kept(model):
            found = kept(model, ("prepared", *key, now, training), lambda: within(placement, check))
    if found:
        raise NeedsLayersError(found)


def within(placement: Placement, function: Callable[[], Any]) -> Any:
    """Returns what a function returns in the scope of a placement, or why towers cannot have it."""
    try:
        with placement.scope():
            return function()
    except NeedsLayersError as error:
        return str(error)


def check_built_model(
    model: keras.Model, devices: Sequence[str], data: Data, batch: Any, training: bool
) -> None:
    """Raises NeedsLayersError as `prepare` does; the batch is the symbolic one of `build`."""
    x, y, _ = keras.utils.unpack_x_y_sample_weight(batch)
    check_no_strategy(model)
    check_built(model, y)
    outputs = getattr(model, "outputs", None) or compute_output_spec(model, x, training=False)
    check_metrics(model, y, outputs)
    check_rows_apart(model, devices, data, batch, outputs, training)


def compiles(model: keras.Model, placement: Placement) -> bool:
    """Returns whether XLA compiles each tower, as `compile(jit_compile=)` says.

    It does not where several towers sum in the middle of a pass, in a synchronized BatchNorm.
    """
    if model.run_eagerly or not model.jit_compile:
        return False
    kind = keras.layers.BatchNormalization
    norms = [layer for layer in flatten_layers(model) if isinstance(layer, kind)]
    return len(placement.devices) == 1 or not any(layer.synchronized for layer in norms)


def key_of(data: Data) -> str:
    """Returns the specs of a batch of any number of rows, as a text."""
    return repr(tf.nest.map_structure(any_number_of_rows, data.spec))


def build(model: keras.Model, batch_spec: Any) -> Any:
    """Builds the model, its losses and its metrics for batches like this, as Keras does.

    Returns a batch of `keras.KerasTensor`s with any number of rows.
    """

    def symbolic(spec: Any, rows: int | None = None) -> Any:
        if not isinstance(spec, tf.TensorSpec):
            raise NeedsLayersError(f"the data holds {type(spec).__name__.removesuffix('Spec')}s")
        if spec.shape.rank is None:
            raise NeedsLayersError("the data holds tensors of unknown rank")
        shape = any_number_of_rows(spec).shape
        return keras.KerasTensor((rows, *shape[1:]) if len(shape) else (), spec.dtype.name)

    batch = tf.nest.map_structure(symbolic, batch_spec)
    if differs_in_training(model, batch):
        raise NeedsLayersError("it returns something else in a training")
    try:
        build_symbolically(model, batch)
    except Exception:  # Of any kind: it is the user's code.
        if not builds(model, tf.nest.map_structure(lambda spec: symbolic(spec, 8), batch_spec)):
            raise
        raise NeedsLayersError("it reads how many rows a batch has") from None
    check_listed(model)  # Some are made only now.
    return batch


def builds(model: keras.Model, batch: Any) -> bool:
    """Returns whether a model is built for a symbolic batch."""
    try:
        build_symbolically(model, batch)
    except Exception:  # Of any kind: it is the user's code.
        return False
    return True


def differs_in_training(model: keras.Model, batch: Any) -> bool:
    """Returns whether a model returns another nest in a training, such as one with more outputs.

    Keras builds its losses for what it returns in none.
    """
    inputs, labels, _ = keras.utils.unpack_x_y_sample_weight(batch)
    has_several = len(tf.nest.flatten(labels)) > 1
    if not has_several or not takes_training(model) or is_of(type(model).call, "keras."):
        return False
    try:
        nests = [compute_output_spec(model, inputs, training=one) for one in (True, False)]
    except Exception:  # Of any kind: it is the user's code.
        return False
    return len({str(keras.tree.map_structure(type, nest)) for nest in nests}) > 1


def steps_per_call(model: keras.Model) -> int:
    """Returns how many batches of a compiled model are one call: `steps_per_execution`.

    Keras documents no search for `auto`, with which its own `fit` fails.
    """
    number = model.steps_per_execution
    return AUTO if number == "auto" else int(number)


def limited(name: str, number: Number) -> Number:
    """Returns `epochs` or `steps_per_epoch`, at most what `keras.config.set_max_...` says.

    None is as many steps as there are.
    """
    most = getattr(keras.config, f"max_{name}")()
    if not most or (number is not None and number <= most):
        return number
    warnings.warn(f"Limiting {name} to {most}", stacklevel=levels_to_caller())
    return most

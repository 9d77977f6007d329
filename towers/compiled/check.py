"""`towers.check`: the first law on a user's own model and data, one tower against several."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import math
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from towers.compiled.checks import NeedsLayersError, check_model, check_own_code
from towers.compiled.data import ArrayData, Data, preprocesses, read_data, read_samples
from towers.compiled.fit import fit
from towers.compiled.input_errors import in_one_sentence
from towers.compiled.kept import NAME
from towers.compiled.own_code import groups_of, layer_calls
from towers.compiled.setting import place, prepare
from towers.devices.placement import Placement
from towers.ground.private_apis import flatten_layers, takes_training
from towers.ground.progress import count_of, waiting
from towers.layers.draws import call_in_inference
from towers.layers.told import exceptions_in
from towers.saving.checkpoint_files import tensorflow_variable

TOLERANCES = {"float64": 1e-12, "float32": 1e-6}  # Of law 1: docs/explanations/laws.md.
LAST_BITS = {"float64": 2.0**-52, "float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7}
ROUNDINGS = 4  # So many times what rounding does is still rounding.
OF_A_FIT = ("train_function", "history", "stop_training", NAME)  # What a fit leaves in a model.


@dataclasses.dataclass(frozen=True)
class CheckReport:
    """How a model trains on several towers, beside one; its text is a table.

    Attributes:
        name, num_towers, updates: the model's name, and what it was trained on and for how long.
        difference: the largest difference of a weight, as a part of the largest weight; states are
            compared with states.
        rounding: that on one tower, from weights that were first moved by their last bit.
        tolerance: what a difference may be at most to be rounding.
        way: what the towers run, and why.
        notes: what runs whole, and what is otherwise than on one device.
        milliseconds: a step's time on one tower, and on all; None if too few were timed.
        num_bytes: those of the weights, and those of the optimizers.
    """

    name: str
    num_towers: int
    updates: int
    difference: float
    rounding: float
    tolerance: float
    way: str
    notes: Sequence[str]
    milliseconds: tuple[float | None, float | None]
    num_bytes: tuple[int, int]

    @property
    def same(self) -> bool:
        """Whether all towers train as one: the weights differ by rounding alone."""
        return self.difference <= self.tolerance

    def __str__(self) -> str:
        towers = ("1 tower", f"{self.num_towers} towers")
        answer = "as one does" if self.same else "OTHERWISE than one"
        times = [f"{name} {'-' if one is None else f'{one:.1f} ms'}"
                 for name, one in zip(towers, self.milliseconds, strict=True)]  # fmt: skip
        weights, slots = (f"{size / 1e3:,.0f} kB" for size in self.num_bytes)
        rows = [
            ("result", f"{towers[1]} train {self.name} {answer} ({self.updates} updates)"),
            ("difference", f"{self.difference:.1e} of the largest weight; rounding alone: "
             f"{self.rounding:.1e}; at most: {self.tolerance:.1e}"),
            ("way", self.way),
            *(("note", note) for note in self.notes[:5]),
            ("a step", ", ".join(times)),
            ("memory", f"weights {weights}, optimizer {slots}; activations come on top"),
        ]  # fmt: skip
        return "\n".join(f"{title:11}{text}" for title, text in rows)


@in_one_sentence()
def check(
    model: keras.Model,
    x: Any,
    y: Any = None,
    batch_size: int | None = None,
    sample_weight: Any = None,
    *,
    towers: int | Sequence[str] = 2,
    updates: int = 6,
) -> CheckReport:
    """Trains a model a little on one tower and on several, and returns how the weights differ.

    Afterwards the model, its optimizers and metrics are as they were before, but built. Layers that
    draw at random are in inference mode meanwhile, so that no mask hides a difference.

    Args:
        model: a compiled model.
        x, y, batch_size, sample_weight: the data, as `towers.fit` takes it, but no generator. The
            first batches of a data set are read once, and all trainings see them.
        towers: as in `towers.fit`, two at least.
        updates: how many updates are made, each time.

    Raises:
        ValueError: an argument is wrong.
        NonFiniteGradientError: a gradient was NaN or infinite.
    """
    check_model(model, "fit")
    placement = place(model, towers)
    devices, several = placement.devices, len(placement.devices)
    read = functools.partial(read_samples, model, y=y, sample_weight=sample_weight,
                             batch_size=batch_size, shuffle=False)  # fmt: skip
    check_comparable(data := read(x), several, updates)
    if not (isinstance(data, ArrayData) or preprocesses(model)) or isinstance(x, tf.data.Dataset):
        data = read(x := read_once(x, updates))
    steps = min(updates, data.num_batches or updates)
    epochs = -(-updates // steps)
    train = functools.partial(
        weights_after, model, x, y, batch_size=batch_size, sample_weight=sample_weight,
        shuffle=False, steps_per_epoch=steps, epochs=epochs, seed=0, alone=True, verbose=0,
    )  # fmt: skip
    with without_draws(model) as quiet, as_it_was(model) as begin_again:
        reason = reason_for_layers(model, placement, data)
        one, _ = train(devices[:1])
        begin_again(rounded=True)
        moved, time_of_one = train(devices[:1])
        begin_again()
        found, time_of_all = train(devices)
        notes, slots = notes_on(model, devices, reason, quiet), groups_of(model)["optimizer"]
    rounding = difference(one, moved)
    usual = TOLERANCES.get(str(model.weights[0].dtype), TOLERANCES["float32"])
    return CheckReport(
        model.name, several, epochs * steps, difference(one, found), rounding,
        max(usual, ROUNDINGS * rounding),
        f"layers only, since {reason}" if reason else "the towers' own step", notes,
        (time_of_one, time_of_all), (num_bytes(model.weights), num_bytes(slots)),
    )  # fmt: skip


def check_comparable(data: Data, several: int, updates: int) -> None:
    """Raises ValueError unless there is something to compare, and data to do it with."""
    if several < 2 or updates < 1:
        raise ValueError(f"check compares 2 towers or more, after 1 update or more. Received "
                         f"{several} and {updates}.")  # fmt: skip
    if data.num_batches == 0:
        raise ValueError("There is nothing to train on: the data has no examples.")
    if data.is_generator:
        raise ValueError("A generator is read only once. Pass arrays, a tf.data.Dataset or a "
                         "keras.utils.PyDataset.")  # fmt: skip


def read_once(x: Any, updates: int) -> tf.data.Dataset:
    """Returns the first batches of a data set, which may give others each time that it is read."""
    batches = read_data(x).one_pass(0).take(updates).cache()
    count = sum(1 for _ in batches)
    return batches.apply(tf.data.experimental.assert_cardinality(count))


def reason_for_layers(model: keras.Model, placement: Placement, data: Data) -> str:
    """Returns why towers run the layers only; an empty text if they have a step of their own."""
    try:
        check_own_code(model, "fit")
        prepare(model, placement, data)
    except NeedsLayersError as error:
        return str(error)
    return ""


def weights_after(
    model: keras.Model, x: Any, y: Any, devices: Sequence[str], **options: Any
) -> tuple[list[np.ndarray], float | None]:
    """Returns all weights and all states after a fit on these devices, each as one vector.

    After them come the median milliseconds of a step.
    """
    ends: list[float] = []

    def note(batch: int, logs: dict[str, Any]) -> None:
        for value in logs.values():
            np.asarray(value)  # Waits for the batch.
        ends.append(time.perf_counter())

    clock = keras.callbacks.LambdaCallback(on_train_batch_end=note)
    with waiting(f"training {model.name} on {count_of(len(devices), 'tower')}"):
        fit(model, x, y, towers=devices, callbacks=[clock], **options)
    own = np.diff(ends[1:])  # The first two are the tracing's.
    milliseconds = float(np.median(own)) * 1e3 if own.size else None
    groups = model.trainable_weights, model.non_trainable_weights
    return [vector_of(group) for group in groups if group], milliseconds


def vector_of(variables: Sequence[keras.Variable]) -> np.ndarray:
    """Returns the numbers of some variables, float64."""
    return np.concatenate([np.float64(one.value).ravel() for one in variables])


def difference(expected: Sequence[np.ndarray], found: Sequence[np.ndarray]) -> float:
    """Returns the largest difference in a vector, relative to the largest number in it."""
    pairs = zip(expected, found, strict=True)
    return max(float(np.abs(a - b).max() / (np.abs(a).max() or 1)) for a, b in pairs)


def num_bytes(variables: Sequence[Any]) -> int:
    """Returns the bytes of some variables."""
    return sum(math.prod(one.shape) * tf.as_dtype(one.dtype).size for one in variables)


def notes_on(
    model: keras.Model, devices: Sequence[str], reason: str, quiet: Sequence[str]
) -> list[str]:
    """Returns what runs whole, and what is otherwise than on one device or in training."""
    notes = list(exceptions_in(flatten_layers(model), sums_rows=False))
    if reason:
        notes = layer_calls(model, devices, "sum", quiet=True).told.describe().split("; ")
    return notes + ([f"off in this check, since drawn: {', '.join(quiet)}"] if quiet else [])


@contextlib.contextmanager
def without_draws(model: keras.Model) -> Iterator[list[str]]:
    """The scope in which layers that draw are in inference mode; it gives their names."""
    layers = [
        one for one in flatten_layers(model)
        if takes_training(one)
        and any(isinstance(part, keras.random.SeedGenerator) for part in vars(one).values())
    ]  # fmt: skip
    for layer in layers:
        vars(layer)["call"] = functools.partial(call_in_inference, layer.call)
    try:
        yield [layer.name for layer in layers]
    finally:
        for layer in layers:
            del vars(layer)["call"]


@contextlib.contextmanager
def as_it_was(model: keras.Model) -> Iterator[Callable[..., None]]:
    """The scope after which a model's variables are as before; it gives what sets them back.

    Those that are made in it, such as an optimizer's, are set to the values that they began with.
    """
    fitted = {name: vars(model)[name] for name in OF_A_FIT if name in vars(model)}
    values = {id(one): (one, one.numpy()) for one in variables_of(model)}

    def record(create: Callable[..., Any], **options: Any) -> Any:
        variable = create(**options)
        if tf.executing_eagerly():
            values[id(variable)] = variable, variable.numpy()
        return variable

    def begin_again(*, rounded: bool = False) -> None:
        trained = {id(tensorflow_variable(one)) for one in model.trainable_variables}
        for variable, value in values.values():
            if rounded and id(variable) in trained:
                signs = np.resize([1, -1, -1], value.shape)
                value = value * (1 + rounding_of(model) * signs)
            variable.assign(tf.cast(value, variable.dtype))

    vars(model)[NAME] = None
    try:
        with tf.variable_creator_scope(record):
            yield begin_again
    finally:
        begin_again()
        for name in OF_A_FIT:
            vars(model).pop(name, None)
        vars(model).update({"train_function": None, "stop_training": False}, **fitted)


def variables_of(model: keras.Model) -> list[tf.Variable]:
    """Returns all variables that training may change."""
    return [tensorflow_variable(one) for group in groups_of(model).values() for one in group]


def rounding_of(model: keras.Model) -> float:
    """Returns the relative size of the last bit of the coarsest numbers that a model computes in.

    On GPUs those are TF32's, unless it is off.
    """
    sizes = [LAST_BITS.get(one.compute_dtype, 0.0) for one in flatten_layers(model)]
    if tf.config.list_logical_devices("GPU"):
        is_coarse = tf.config.experimental.tensor_float_32_execution_enabled()
        sizes.append(LAST_BITS["float16"] if is_coarse else 0.0)
    return max(sizes)

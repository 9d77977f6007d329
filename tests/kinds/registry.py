"""The kinds by name: what each program is, and how it is made anew."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

HOWS = ("plain", "own step", "loop", "hub")
NUM_ROWS = 24  # Of all batches together.


class Program(NamedTuple):
    """What a user brings.

    Attributes:
        model: a compiled Keras model, or an object whose `fit(data, **options)` is a loop of its
            own and returns {name: a number for each epoch}.
        data: a data set of batches, or arrays `(x, y)` or `(x, y, weights)`.
        options: what else `fit` is given.
    """

    model: Any
    data: Any
    options: Mapping[str, Any] = {}


class Kind(NamedTuple):
    """A kind of program.

    Attributes:
        name: as in the table.
        family: the module that has it.
        how: `plain` (Keras's own step), `own step`, `loop` (no `fit` of a Keras model, or code of
            others that calls it) or `hub` (a task of KerasHub).
        make: returns the program before its first step; Keras's float type, dtype policy and seed
            are set before.
        random_inside: whether a layer draws random numbers, which no number of towers draws as
            another does.
        couples: whether a layer or loss of it mixes the rows of a batch.
        repeated_rows: whether Keras's optimizer squares repeated rows of a table's gradient one by
            one; towers sum them first, so that they are compared with one tower.
        tolerance: of the state's largest number, and of the History's or of one.
        needs: the package without which it is skipped.
        said: what is warned of where it runs, as filters of warnings without their action.
    """

    name: str
    family: str
    how: str
    make: Callable[[], Program]
    random_inside: bool = False
    couples: bool = False
    repeated_rows: bool = False
    tolerance: float = 1e-12
    needs: str | None = None
    said: tuple[str, ...] = ()

    @property
    def missing(self) -> str | None:
        """The reason to skip it, if any."""
        if self.needs is None or importlib.util.find_spec(self.needs):
            return None
        return f"{self.needs} is not installed"


KINDS: dict[str, Kind] = {}


def kind(how: str = "plain", **more: Any) -> Callable[[Callable[[], Program]], Kind]:
    """Returns a decorator that enters a function as a kind of its name and its module's family."""
    if how not in HOWS:
        raise ValueError(f"a kind is one of {HOWS}, not {how!r}")

    def enter(make: Callable[[], Program]) -> Kind:
        family = make.__module__.rpartition(".")[2]
        if make.__name__ in KINDS:
            raise ValueError(f"two kinds are named {make.__name__}")
        KINDS[make.__name__] = Kind(make.__name__, family, how, make, **more)
        return KINDS[make.__name__]

    return enter


def batches(arrays: Any) -> tf.data.Dataset:
    """Returns a data set of batches of 8, 8, 7 and 1 rows of a nest of arrays [24, ...]."""
    rows = tf.data.Dataset.from_tensor_slices(arrays)
    return rows.take(23).batch(8).concatenate(rows.skip(23).batch(1))


def random() -> np.random.Generator:
    """Returns the generator of a program's data."""
    return np.random.default_rng(5)


def vectors(width: int, *, rows: int = NUM_ROWS) -> np.ndarray:
    """Float64 [rows, width]."""
    return random().normal(size=(rows, width))


def pictures(size: int, channels: int = 1, *, rows: int = NUM_ROWS) -> np.ndarray:
    """Float64 [rows, size, size, channels], between -1 and 1."""
    return random().uniform(-1, 1, (rows, size, size, channels))


def labels(classes: int, *shape: int, rows: int = NUM_ROWS) -> np.ndarray:
    """Int32 [rows, *shape] below `classes`."""
    return random().integers(0, classes, (rows, *shape)).astype("int32")


def tokens(length: int, vocabulary: int, *, rows: int = NUM_ROWS) -> np.ndarray:
    """Int32 [rows, length] of different lengths; 0 is padding."""
    ids = random().integers(1, vocabulary, (rows, length)).astype("int32")
    ids[np.arange(length) >= random().integers(2, length + 1, rows)[:, None]] = 0
    return ids


def dense(*widths: int, activation: str = "tanh") -> keras.Sequential:
    """Returns dense layers, the first width the inputs', the last without activation."""
    *hidden, last = widths[1:]
    return keras.Sequential(
        [
            keras.Input((widths[0],)),
            *(keras.layers.Dense(width, activation) for width in hidden),
            keras.layers.Dense(last),
        ]
    )


def told(model: keras.Model, loss: Any, y: Any = None, outputs: Any = None) -> dict[str, Any]:
    """Updates the metrics that Keras made of `compile`, as own steps do; returns their results."""
    for metric in model.metrics:
        if metric.name == "loss":
            metric.update_state(loss)
        else:
            metric.update_state(y, outputs)
    return model.get_metrics_result()


def sgd(rate: float = 0.1) -> keras.optimizers.Optimizer:
    """Returns the optimizer of most kinds."""
    return keras.optimizers.SGD(rate, momentum=0.9)


def adam(rate: float = 0.01) -> keras.optimizers.Optimizer:
    """Returns the optimizer of those that are published with it.

    Its epsilon keeps it from enlarging gradients that are zero but for rounding.
    """
    return keras.optimizers.Adam(rate, epsilon=1e-3)

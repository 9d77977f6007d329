"""Runs a program plainly or on towers, and compares what it ends with: its state and History."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Iterator
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

import towers
from tests.kinds.registry import Kind, Program


class Outcome(NamedTuple):
    """What a run begins and ends with.

    Attributes:
        before: {name: array} of the variables that the program had before its fit.
        state: {name: array} of all variables of the program.
        history: {name: a number for each epoch}.
    """

    before: dict[str, np.ndarray]
    state: dict[str, np.ndarray]
    history: dict[str, list[float]]


class Difference(NamedTuple):
    """The largest difference of the states, of their largest number, and of the Histories."""

    state: float
    history: float


def run(kind: Kind, num_towers: int) -> Outcome:
    """Makes the program anew and fits it on so many towers; 0 is plain Keras without towers."""
    if kind.needs:
        importlib.import_module(kind.needs)  # Importing may draw from the seeded generators.
    with afresh():
        program = kind.make()
        before = state_of(program.model)
        return Outcome(before, *fit(program, kind, num_towers))


@contextlib.contextmanager
def afresh() -> Iterator[None]:
    """The scope in which Keras is fresh, seeded and computes in float64."""
    keras.utils.clear_session(free_memory=False)
    with float64():
        keras.utils.set_random_seed(3)
        yield


@contextlib.contextmanager
def float64() -> Iterator[None]:
    """The scope in which Keras computes in float64."""
    before = keras.config.floatx(), keras.config.dtype_policy()
    keras.config.set_floatx("float64")
    keras.config.set_dtype_policy("float64")
    try:
        yield
    finally:
        keras.config.set_floatx(before[0])
        keras.config.set_dtype_policy(before[1])


def fit(program: Program, kind: Kind, num_towers: int) -> tuple[dict[str, np.ndarray], Any]:
    """Returns the state and History of a program after its fit."""
    model, data, options = program
    arrays = data if isinstance(data, tuple) else (data,)
    if isinstance(model, keras.Model):
        model.jit_compile = False  # Compiling takes longer than training.
        options = {"verbose": 0, "shuffle": False, **options}
    if num_towers == 0:
        history = model.fit(*arrays, **options)
    elif kind.how == "loop":
        with towers.layers_on(["/CPU:0"] * num_towers, repeated_rows="keras"):
            history = model.fit(*arrays, **options)
    else:
        if kind.how != "plain":  # Its own code updates the tables as one device does.
            options = {"repeated_rows": "keras", **options}
        history = towers.fit(model, *arrays, towers=num_towers, **options)
    return state_of(model), getattr(history, "history", history)


def state_of(program: Any) -> dict[str, np.ndarray]:
    """Returns {name: array} of all variables of a program."""
    return {name: variable.numpy() for name, variable in variables_of(program).items()}


def variables_of(program: Any) -> dict[str, Any]:
    """Returns {name: variable} of all that a program holds: in attributes, lists and dicts.

    Metrics and the states of random generators are left out: a metric ends an epoch with what the
    History tells, and a generator's state only counts draws.
    """
    found: dict[str, Any] = {}
    seen: dict[int, Any] = {}

    def visit(value: Any, path: str) -> None:
        if id(value) in seen:
            return
        seen[id(value)] = value
        if isinstance(value, keras.Variable | tf.Variable):
            if value.dtype not in ("uint32", "uint64", tf.resource):
                found[path] = value
        elif isinstance(value, keras.metrics.Metric | keras.random.SeedGenerator):
            held = (
                [value.state] if isinstance(value, keras.random.SeedGenerator) else value.variables
            )
            seen.update((id(variable), variable) for variable in held)
        elif isinstance(value, dict):
            for key, item in value.items():
                visit(item, f"{path}.{key}")
        elif isinstance(value, list | tuple):
            for place, item in enumerate(value):
                visit(item, f"{path}.{place}")
        elif is_program(value):
            visit(list(getattr(value, "metrics", None) or ()), path)
            for place, variable in enumerate(getattr(value, "variables", None) or ()):
                visit(variable, f"{path}.{place}:{variable.name}")
            for name, item in vars(value).items():
                visit(item, f"{path}.{name}")

    visit(program, type(program).__name__)
    return found


def is_program(value: Any) -> bool:
    """Returns whether an object may hold state of a program."""
    kinds = (keras.Layer, keras.optimizers.Optimizer, keras.losses.Loss, tf.Module)
    return isinstance(value, kinds) or type(value).__module__.startswith("tests.kinds")


def difference(one: Outcome, other: Outcome) -> Difference:
    """Returns how far two outcomes are from each other; infinite if their names differ."""
    if list(one.state) != list(other.state) or sorted(one.history) != sorted(other.history):
        return Difference(float("inf"), float("inf"))
    floats = [array for array in one.state.values() if array.dtype.kind == "f"]
    largest = max(map(size_of, floats), default=1.0)
    state = max((apart(one.state[name], other.state[name]) for name in one.state), default=0.0)
    history = max(
        apart(one.history[name], other.history[name]) / max(1.0, size_of(one.history[name]))
        for name in one.history
    )
    return Difference(state / largest, history)


def size_of(array: Any) -> float:
    """Returns the largest absolute number."""
    return float(np.max(np.abs(np.asarray(array, "float64")), initial=0.0)) or 1.0


def apart(one: Any, other: Any) -> float:
    """Returns the largest absolute difference; infinite if one is not finite or shapes differ."""
    one, other = np.asarray(one, "float64"), np.asarray(other, "float64")
    if one.shape != other.shape or not (np.isfinite(one).all() and np.isfinite(other).all()):
        return float("inf")
    return float(np.max(np.abs(one - other), initial=0.0))

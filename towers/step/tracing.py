"""Tracing: the one trace of a step, in which towers use variables only as the engine knows."""

from __future__ import annotations

import contextlib
import functools
import re
from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from tensorflow.types.experimental import ConcreteFunction

from towers.ground.concrete_function import concrete_function
from towers.ground.host import HOST
from towers.ground.private_apis import call_of_tensors, checks_in_any_order, rewrite_with
from towers.step.tower_function import TowerProgram
from towers.travel.gradients import Gradient
from towers.variables.find_variables import uses_of
from towers.variables.outside_writes import unobserved
from towers.variables.shared_variables import SharedVariables

WRITES = re.compile(
    r"Assign\w*VariableOp|Resource(Sparse)?Apply\w+|Resource(Scatter|StridedSlice)\w+"
)
# What rewrites nothing without a GPU, or next to nothing the second time: half of a first call.
FOR_CPUS = {
    "meta_optimizer_iterations": 1,  # ONE
    "disable_tfg_optimizer": True,
    "layout_optimizer": 2,  # OFF
    "memory_optimization": 1,  # NO_MEM_OPT
}
MOST_SHAPES = 1000  # Are remembered; ragged batches have new ones without end.
IN_A_TOWER = re.compile(r"tower_\d+/(?!(denominators_\d+/)?parameters/)")


def trace(
    function: Callable[..., Any],
    device: str,
    *specs: Any,
    shared: SharedVariables | None = None,
) -> ConcreteFunction:
    """Returns a function, traced.

    TensorFlow marks each result with an identity, in no scope of the function. Without a device it
    may be placed on a GPU, to which a result of the CPU then travels and from which it comes back.

    Args:
        function: a function of tensors.
        device: the device of its results.
        specs: the specs of its arguments.
        shared: the variables that its towers share, if towers are in it.

    Raises:
        RuntimeError: a tower uses a variable past the value that it has read, or assigns one that
            is not a Keras variable.
    """
    with contextlib.ExitStack() as after_the_results, checks_in_any_order():

        @functools.wraps(function)
        def with_device(*arguments: Any) -> Any:
            results = function(*arguments)
            after_the_results.enter_context(tf.device(device))
            return results

        concrete = concrete_function(with_device, *specs)
    rewrite_on_cpus(concrete, **FOR_CPUS)
    if shared is not None:
        check_handles(concrete.graph, shared)
    return concrete


def checked_once(function: ConcreteFunction, *specs: Any) -> Callable[..., Any]:
    """Returns a traced function of which TensorFlow checks arguments of each shape once.

    Its check of every argument of every call takes a quarter of a millisecond.
    """
    call, known = call_of_tensors(function), set[Any]()

    @functools.wraps(function)
    def called(*arguments: Any) -> Any:
        try:
            tf.nest.assert_same_structure(specs, arguments)
        except (TypeError, ValueError):
            return function(*arguments)  # It says what is wrong.
        tensors = tf.nest.flatten(arguments, expand_composites=True)
        if not tf.executing_eagerly() or not all(isinstance(one, tf.Tensor) for one in tensors):
            return function(*arguments)
        key = tuple((one.dtype, one.shape) for one in tensors)
        if key in known:
            return call(tensors)
        results = function(*arguments)
        if len(known) < MOST_SHAPES:
            known.add(key)
        return results

    return called


def rewrite_on_cpus(function: ConcreteFunction, **settings: Any) -> None:
    """Gives a function settings as `rewrite_with` does, if there is no GPU in sight."""
    if not tf.config.list_logical_devices("GPU"):
        rewrite_with(function, **settings)


def check_handles(graph: tf.Graph, shared: SharedVariables) -> None:
    """Raises RuntimeError for a variable that a tower uses past the values that it has read."""
    by_handle = {id(one.value.handle): one for one in shared.all + shared.seeds}
    names = {id(variable.handle): variable.name for variable in graph.variables}
    for outer, inner in graph.captures:
        ops = [op for op in inner.consumers() if IN_A_TOWER.match(op.name)]
        variable = by_handle.get(id(outer))
        if not ops or inner.dtype != tf.resource:
            continue
        if variable is not None and not shared.is_used_by_handle(variable):
            raise past_the_value(variable)
        if variable is None and any(map(WRITES.fullmatch, uses_of(inner, IN_A_TOWER.pattern))):
            raise raw_write(names.get(id(outer), inner.op.name))


def past_the_value(variable: keras.Variable) -> RuntimeError:
    """Returns the error for a layer that keeps the `tf.Variable` of a Keras variable."""
    return RuntimeError(
        f"A tower uses the variable '{variable.path}' directly instead of the value that it has "
        "read, so its gradient would be lost. A layer keeps `variable.value` or its handle from "
        "outside the tower function; use the Keras variable itself in `call`."
    )


def raw_write(name: str) -> RuntimeError:
    """Returns the error for a raw `tf.Variable` that a layer assigns."""
    return RuntimeError(
        f"The tower function assigns the tf.Variable '{name}', so every tower would assign it, in "
        "any order. Make it a non-trainable Keras variable, `self.add_weight(..., "
        "trainable=False)`: then towers return its values, which are merged once, by its "
        "`aggregation`."
    )


def check_gradients(program: TowerProgram, specs: Any, gradients: Sequence[Gradient]) -> None:
    """Raises RuntimeError for a variable whose gradient is lost in a tower.

    Only if a tower has found no gradient for a variable, the tower function is traced without a
    tower, to see if the loss depends on the variable after all. The specs are those of the pair
    (batch, state).
    """
    pairs = zip(program.shared.trainable, gradients, strict=True)
    without = [variable for variable, gradient in pairs if gradient is None]
    found: list[Gradient] = []

    def differentiate(pair: Any) -> None:
        with tf.GradientTape() as tape:
            (losses, _, _), _ = program.shard_fn(pair)
        found.extend(tape.gradient(losses, [variable.value for variable in without]))

    if without:
        with unobserved():  # The trace never runs.
            concrete_function(differentiate, specs)
    lost = [one.path for one, other in zip(without, found, strict=True) if other is not None]
    if lost:
        raise RuntimeError(
            f"The loss depends on {', '.join(lost)} in a plain trace of the tower function but "
            "not in a tower, so they would not be trained. A function with a custom gradient, or "
            "one that keeps a variable's value, hides them from the tower. Pass the values as "
            "arguments, or, to save memory, use towers.steps.recompute(function)."
        )


def number_on_host(number: int | tf.Tensor) -> tf.Tensor:
    """Returns a number as int64 [] on the host, where seeds derive from it.

    TensorFlow keeps every Python number that ever became a tensor (`TFE_TensorHandleCache`,
    some 700 bytes each), but no array. A training would grow with each of its steps.
    """
    value = np.asarray(number, np.int64) if isinstance(number, int) else number
    with tf.device(HOST):  # Otherwise TensorFlow puts it into the memory of the first GPU.
        return tf.convert_to_tensor(value, tf.int64)

"""The variables of a tower function, and how one trace of it uses each of them."""

from __future__ import annotations

import contextlib
import itertools
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import keras
import tensorflow as tf

from towers.ground.private_apis import flatten_layers
from towers.variables.shared_variables import SharedVariables
from towers.variables.tower_scope import no_new_variables, stateful_error
from towers.variables.variable_uses import CAPTURED, Uses


def gather_variables(
    tower_fn: Callable[..., Any],
    variables: keras.Model | Sequence[keras.Variable],
    batch_spec: Any,
    *,
    compiled: bool = False,
) -> SharedVariables:
    """Returns the variables of a tower function; an unbuilt model is built on this device.

    Args:
        tower_fn: the tower function, traced once to see how it uses the variables.
        variables: the Keras variables, or the model that owns them.
        batch_spec: the specs of a shard's batch.
        compiled: whether XLA compiles the towers. XLA takes no variable from another device, so
            each tower then reads whole tables. It compiles no kernel of cuDNN either: the model's
            layers with `use_cudnn="auto"` use other ops from now on.

    Raises:
        ValueError: a variable is listed twice, used in a nested `tf.function`, or the state of a
            recurrent layer with `stateful=True`; or XLA cannot compile the function.
    """
    if compiled and isinstance(variables, keras.Model):
        leave_out_cudnn(variables)
    graph = trace_once(tower_fn, batch_spec)
    if compiled:
        check_without_cudnn(graph)
    uses = Uses(graph)
    # Keras lists those of metrics that layers update apart from a model's variables, with the
    # metrics of `compile`, which no layer updates.
    metrics = filter(uses.consumers, getattr(variables, "metrics_variables", ()))
    found = [*getattr(variables, "variables", variables), *metrics]
    check_distinct(found)
    for variable in found:
        check_consumers(variable, uses.consumers(variable))
    tables = [variable for variable in found if uses.consumers(variable) == {"ResourceGather"}]
    captured = [variable for variable in found if CAPTURED in uses.of_variable(variable)]
    if compiled and captured:
        raise captured_error(captured, "XLA takes no variable of another device")
    unused = [variable for variable in found if not uses.consumers(variable)]
    return SharedVariables(found, [] if compiled else tables, captured, unused)


def leave_out_cudnn(model: keras.Model) -> None:
    """Makes layers that use cuDNN where they can, which is where there is a GPU, do without it."""
    for layer in flatten_layers(model):
        if getattr(layer, "use_cudnn", False) == "auto":
            layer.use_cudnn = False


def check_without_cudnn(graph: tf.Graph) -> None:
    """Raises ValueError if the graph has a kernel of cuDNN for recurrent layers."""
    names = sorted(op.name for op in graph.get_operations() if op.type.startswith("CudnnRNN"))
    if names:
        raise ValueError(
            "XLA cannot compile the kernels of cuDNN for recurrent layers. Received compiled=True "
            f"and a tower function with {', '.join(names)}. Make these layers with "
            "use_cudnn=False, or pass the model that owns them instead of its variables."
        )


def trace_once(tower_fn: Callable[..., Any], batch_spec: Any) -> tf.Graph:
    """Returns the graph of one plain call of the tower function, which builds unbuilt layers."""
    calls = itertools.count()

    def call(batch: Any) -> None:
        # TensorFlow calls this again if it made variables. A function that makes variables in
        # the second call too would make them in every tower.
        with no_new_variables("Every tower") if next(calls) else contextlib.nullcontext():
            tower_fn(batch)

    try:
        return tf.function(call, autograph=False).get_concrete_function(batch_spec).graph
    except ValueError as error:
        if "stateful=True" in str(error):  # Keras wants to know the number of rows.
            raise stateful_error() from error
        raise


def check_distinct(variables: Sequence[keras.Variable]) -> None:
    """Raises ValueError for a variable that is listed twice: it would be updated twice."""
    counts = Counter(map(id, variables))
    twice = {variable.path for variable in variables if counts[id(variable)] > 1}
    if twice:
        raise ValueError(
            "Each of the `variables` must be listed once. Received more than once: "
            f"{', '.join(sorted(twice))}. Pass a model that owns them all, whose `variables` list "
            "shared ones once, or remove the duplicates."
        )


def captured_error(captured: Sequence[keras.Variable], reason: str) -> ValueError:
    """Returns the error for a way to train in which no custom gradient can capture variables."""
    paths = ", ".join(variable.path for variable in captured)
    return ValueError(
        "A function with a custom gradient, such as keras.remat or tf.recompute_grad, uses "
        f"variables from around it, which this step cannot do exactly: {reason}. Received "
        f"{paths}. Use towers.steps.recompute(function) to save memory, or pass a "
        "tf.custom_gradient its variables' values as arguments."
    )


def check_consumers(variable: keras.Variable, consumers: set[str]) -> None:
    """Raises ValueError for a variable that a nested `tf.function` uses."""
    if consumers & {"PartitionedCall", "StatefulPartitionedCall"}:
        raise ValueError(
            f"The tower function calls a tf.function that uses the variable '{variable.path}'. "
            "It would keep the variable of its first trace, instead of the value that each "
            "tower has read, and give it no gradient. Leave `@tf.function` out there: the "
            "whole step is one."
        )

"""The variables of a tower function, and how one trace of it uses each of them."""

from __future__ import annotations

import contextlib
import itertools
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import keras
import tensorflow as tf

from towers.ground.concrete_function import concrete_function
from towers.ground.private_apis import flatten_layers, global_seed_generator, graphs_called_by
from towers.variables.shared_variables import SharedVariables
from towers.variables.tower_scope import no_new_variables, stateful_error

CAPTURED = "captured by a custom gradient"
BRANCHES = ("If", "StatelessIf", "Case", "StatelessCase")  # Their first input is the condition.
CALLS = (*BRANCHES, "While", "StatelessWhile", "PartitionedCall", "StatefulPartitionedCall")


class NotCompilableError(ValueError):
    """XLA cannot compile a tower function, or none of its batches."""


def gather_variables(
    tower_fn: Callable[..., Any],
    variables: keras.Model | Sequence[keras.Variable],
    batch_spec: Any,
    *,
    compiled: bool,
) -> SharedVariables:
    """Returns the variables of a tower function; an unbuilt model is built on this device.

    What it draws by `keras.random` without a seed follows from the step's seed as all its random
    numbers do.

    Args:
        tower_fn: the tower function, traced once to see how it uses the variables.
        variables: the Keras variables, or the model that owns them.
        compiled: whether XLA compiles the towers. XLA takes no variable from another device, so
            each tower then reads whole tables. It compiles no kernel of cuDNN either: the model's
            layers with `use_cudnn="auto"` use other ops from now on.

    Raises:
        ValueError: a variable is listed twice, or the state of a recurrent layer with
            `stateful=True`.
        NotCompilableError: XLA cannot compile the function.
    """
    if compiled and isinstance(variables, keras.Model):
        leave_out_cudnn(variables)
    graph = trace_once(tower_fn, batch_spec)
    if compiled:
        check_without_cudnn(graph)
    held = {id(outer): inner for outer, inner in graph.captures}

    def consumers(variable: keras.Variable) -> set[str]:
        inner = held.get(id(variable.value.handle))
        return set() if inner is None else {op.type for op in inner.consumers()}

    # Keras lists those of metrics that layers update apart from a model's variables, with the
    # metrics of `compile`, which no layer updates.
    metrics = filter(consumers, getattr(variables, "metrics_variables", ()))
    found = [*getattr(variables, "variables", variables), *metrics]
    without_a_seed = global_seed_generator().state
    if consumers(without_a_seed):
        found.append(without_a_seed)
    check_distinct(found)
    tables = [variable for variable in found if consumers(variable) == {"ResourceGather"}]
    used = [variable for variable in found if consumers(variable)]
    captured = [one for one in used if CAPTURED in uses_of(held[id(one.value.handle)])]
    if compiled and captured:
        error = captured_error(captured, "XLA takes no variable of another device")
        raise NotCompilableError(str(error))
    unused = [variable for variable in found if not consumers(variable)]
    return SharedVariables(found, [] if compiled else tables, captured, unused)


def leave_out_cudnn(model: keras.Model) -> None:
    """Makes layers that use cuDNN where they can, which is where there is a GPU, do without it."""
    for layer in flatten_layers(model):
        if getattr(layer, "use_cudnn", False) == "auto":
            layer.use_cudnn = False


def check_without_cudnn(graph: tf.Graph) -> None:
    """Raises NotCompilableError if the graph has a kernel of cuDNN for recurrent layers."""
    names = sorted(op.name for op in graph.get_operations() if op.type.startswith("CudnnRNN"))
    if names:
        raise NotCompilableError(
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
        return concrete_function(call, batch_spec).graph
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


def uses_of(resource: tf.Tensor, nodes: str = "") -> Iterator[str]:
    """Yields the uses of a resource that a tensor of a graph holds.

    A use is the type of an op that takes the resource, in the graph itself or in a branch, a loop
    or a function that it calls, or `CAPTURED`: a function with a custom gradient, such as
    `tf.recompute_grad`, takes the variable's value from around it.

    Args:
        nodes: a regular expression for the beginning of the names of the ops that count.
    """
    for op in resource.consumers():
        if not re.match(nodes, op.name):
            continue
        if op.type in CALLS:
            places = [index for index, one in enumerate(op.inputs) if one is resource]
            for graph, place in itertools.product(graphs_called_by(op), places):
                yield from uses_of(graph.inputs[place - (op.type in BRANCHES)])
        elif op.type == "Identity":
            yield from uses_of(op.outputs[0])
        else:
            yield CAPTURED if op.type == "ReadVariableOp" and is_captured(op) else op.type


def is_captured(read: tf.Operation) -> bool:
    """Returns whether a read gives a custom gradient a variable that is not its argument.

    TensorFlow's `IdentityN` of a custom gradient takes its results, its arguments and the
    variables from around it, and reads only these itself, within its own scope.
    """
    return any(
        op.type == "IdentityN"
        and op.get_attr("_gradient_op_type").startswith(b"CustomGradient")
        and read.name.startswith(f"{op.name}/")
        for op in read.outputs[0].consumers()
    )

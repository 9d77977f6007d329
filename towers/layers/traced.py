"""What a trace of a layer's call shows: where its numbers come from."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from towers.ground.concrete_function import concrete_function
from towers.ground.private_apis import global_seed_generator, stored_value
from towers.layers.part import Call, Outcome
from towers.layers.rows import is_differentiable
from towers.layers.scope import CallScope, captured_in
from towers.variables.tower_scope import depends_on

TRACED = "traced"  # Where names are the same in every trace, whatever its arguments are called.
CUSTOM = b"CustomGradient-"  # What TensorFlow calls those in a graph.
STOPPED = b"StopGradient"
ASSIGNMENT = re.compile(rb"Assign\w*VariableOp|ResourceScatter")
MESSAGE = re.compile(rb"Write\w*Summary|PrintV2")


class Surroundings(NamedTuple):
    """Where the numbers of a layer come from.

    Attributes:
        refused: why the layer runs whole, the end of a sentence; "" if it may be cut.
        fixed: the indices of the variables whose rows are looked up whatever the batch is.
        has_gradient: whether something in it has a custom gradient.
        sways_gradient: whether the gradient may couple rows where no output does.
        is_closed: whether it reads its own variables alone, each by the value that it is given or
            row by row.
        read: the variables of floats that it reads and that are not its Keras variables.
        looks_up: whether rows of a variable are looked up by the batch.
    """

    refused: str = ""
    fixed: frozenset[int] = frozenset()
    has_gradient: bool = False
    sways_gradient: bool = False
    is_closed: bool = True
    read: Sequence[tf.Variable] = ()
    looks_up: bool = False


def surroundings_of(call: Call) -> Surroundings:
    """Returns what a trace of the layer shows of where its numbers come from."""
    known = {id(tensor) for tensor in call.others()}
    tables: dict[int, set[bool]] = {}
    variables, scope = call.layer.variables, CallScope(0)
    values: list[tf.Tensor] = []

    def trace(tensors: list[tf.Tensor]) -> None:
        values.extend(tf.convert_to_tensor(stored_value(variable)) for variable in variables)
        scope.state_mapping.update(zip(map(id, variables), values, strict=True))
        again = call.with_tensors(tensors)
        again.outcome(scope)
        cut = again.cut()
        for table, indices in lookups_in(values[0].graph, cut) if values else ():
            for index, value in enumerate(values):
                if depends_on(table, [value]):
                    tables.setdefault(index, set()).add(depends_on(indices, cut))

    graph = concrete_function(trace, call.tensors()).graph
    fixed = frozenset(index for index, ways in tables.items() if ways == {False})
    text = graph.as_graph_def().SerializeToString()
    refused = scope.left_within(graph) or refusal_of(text)
    if any(len(ways) > 1 for ways in tables.values()):
        refused = "looks up rows of a table by the batch and besides"
    if any(id(tensor) not in known for tensor in captured_in(graph)):
        refused = "computes from tensors that are not given to it"
    others = scope.others.keys() - {id(global_seed_generator().state)}
    is_closed = not others and uses_of(graph, variables) <= {one.op for one in values}
    has_gradient, read = CUSTOM in text, others_read_in(graph, variables)
    sways_gradient = has_gradient or STOPPED in text
    looks_up = any(True in ways for ways in tables.values())
    return Surroundings(refused, fixed, has_gradient, sways_gradient, is_closed, read, looks_up)


def is_chained(call: Call) -> bool:
    """Returns whether a trace shows a tensor that comes out and is computed from another one.

    On towers none is: each comes out by itself. One that comes out twice is one tensor, and an
    argument is itself. States count not: nobody asks for a gradient by a recurrent layer's state
    through its output.
    """
    if isinstance(call.layer, (keras.layers.RNN, keras.layers.Bidirectional)):
        return False
    again, outcome = trace_of(call, call.tensors())
    given = set(map(id, again.tensors()))
    own = {id(one): one for one in filter(is_differentiable, outcome.own_tensors())}
    out = [one for number, one in own.items() if number not in given]
    return any(depends_on(one, [two]) for one, two in itertools.permutations(out, 2))


def trace_of(call: Call, specs: Sequence[Any]) -> tuple[Call, Outcome]:
    """Returns a call in a trace with such tensors, and what comes out of it there.

    The specs are as the tensors of `Call.with_tensors`, or these.
    """
    found: list[tuple[Call, Outcome]] = []

    def trace(tensors: list[tf.Tensor]) -> None:
        again = call.with_tensors(tensors)
        with tf.name_scope(TRACED):
            found.append((again, again.outcome(CallScope(0))))

    concrete_function(trace, list(specs))
    return found[0]


def refusal_of(graph_def: bytes) -> str:
    """Returns what a graph does that no part of a call should; "" if there is nothing.

    No scope of Keras's holds back what is assigned to a `tf.Variable`.
    """
    if ASSIGNMENT.search(graph_def):
        return "assigns a tf.Variable"
    return "prints, or writes a summary" if MESSAGE.search(graph_def) else ""


def lookups_in(graph: tf.Graph, cut: Sequence[tf.Tensor]) -> Iterator[tuple[tf.Tensor, tf.Tensor]]:
    """Yields the table and the indices of each lookup of rows in a trace.

    What is computed from the rows of the batch, those of `cut`, is no table.
    """
    operations: list[Any] = graph.get_operations()
    for operation in operations:
        if operation.type == "GatherV2" and not depends_on(operation.inputs[0], cut):
            yield operation.inputs[0], operation.inputs[1]


def others_read_in(graph: tf.Graph, variables: Sequence[keras.Variable]) -> list[tf.Variable]:
    """Returns the variables of floats that a trace reads besides these."""
    known = set(map(id, map(stored_value, variables)))
    read: Sequence[tf.Variable] = graph.variables
    return [one for one in read if one.dtype.is_floating and id(one) not in known]


def uses_of(graph: tf.Graph, variables: Sequence[keras.Variable]) -> set[tf.Operation]:
    """Returns the operations of a trace that take variables whole, by their handles."""
    handles = {id(stored_value(variable).handle) for variable in variables}
    taken = [inner.consumers() for outer, inner in graph.captures if id(outer) in handles]
    return {op for ops in taken for op in ops if op.type != "ResourceGather"}

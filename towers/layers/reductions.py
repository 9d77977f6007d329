"""What a trace computes from all rows of a batch at once, as the shapes in it show."""

from __future__ import annotations

import itertools
import re
from collections.abc import Container, Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from towers.ground.private_apis import graphs_run_by
from towers.variables.tower_scope import depends_on

ROWS = 211  # A prime that hardly any axis has but that of rows.
# Ops in which rows stay and may mix, along one axis, and those that compute nothing from rows.
WITHIN = re.compile("Cum(sum|prod)|(Log)?Softmax|TopKV2|Unique(V2|WithCounts)?")
TELLS = re.compile("Shape(N)?|Size|Rank|Unpack|(Strided)?Slice|Split(V)?|TensorList.*")
# Ops whose results have as many rows as the values say.
COUNTS = re.compile(
    "Where|Unique.*|DynamicPartition|ListDiff|NonMaxSuppression.*|Ragged.*|String(Split.*|NGrams)|"
    "UnicodeDecode.*"
)
PADS = "RaggedTensorToTensor"  # To the longest row, unless their length is given.
PYTHON = re.compile("(Eager)?PyFunc(Stateless)?")
HANDLES = (tf.variant, tf.resource)
SHAPES = ("Shape", "ShapeN", "Size", "Rank")


def reductions_in(graph: tf.Graph) -> Iterator[tf.Tensor]:
    """Yields what a trace with `ROWS` rows computes from all of them at once.

    So is what comes out of a loop or a branch in which that is done.
    """
    operations: list[Any] = graph.get_operations()
    counted, idle = counted_in(graph), idle_in(graph)
    for operation in operations:
        if operation in idle:
            continue
        inner = graphs_run_by(operation)
        within = itertools.chain.from_iterable(map(reductions_in, inner))
        if inner:
            is_mixed = any(True for _ in within) or carries(operation, inner[-1])
        else:
            is_mixed = reduces(operation, counted)
        if is_mixed:
            yield from operation.outputs


def counted_in(graph: tf.Graph) -> set[int]:
    """Returns the ids of the tensors of a trace whose sizes follow from the values of rows."""
    operations: list[Any] = graph.get_operations()
    found = set[int]()
    for operation in operations:
        is_first = COUNTS.fullmatch(operation.type) and any(map(has_rows, operation.inputs))
        is_even = operation.type == PADS and not pads(operation)
        if not is_even and (is_first or any(id(one) in found for one in operation.inputs)):
            found.update(id(x) for x in operation.outputs if not x.shape.is_fully_defined())
    return found


def idle_in(graph: tf.Graph) -> set[tf.Operation]:
    """Returns the operations of a trace whose results change nothing.

    They end between two limits that are the same, as the largest number in TensorFlow's `bincount`
    does where it is told how far to count.
    """
    operations: list[Any] = graph.get_operations()
    found = set[tf.Operation]()
    for operation in reversed(operations):
        users = [user for one in operation.outputs for user in one.consumers()]
        is_limited = operation.type == "Maximum" and all(
            user.type == "Minimum" and is_same(user.inputs[0], operation.inputs[0])
            for user in users
        )
        if users and (is_limited or found.issuperset(users)):
            found.add(operation)
    return found


def is_same(one: tf.Tensor, other: tf.Tensor) -> bool:
    """Returns whether a trace knows that two numbers are the same."""
    values = tf.get_static_value(one), tf.get_static_value(other)
    return one is other or (values[0] is not None and np.array_equal(*values))


def reduces(operation: tf.Operation, counted: Container[int]) -> bool:
    """Returns whether an operation takes tensors with rows, and the rows vanish or mix in it.

    Args:
        counted: the ids of tensors that have some of the rows, or numbers for these.
    """
    given, made = operation.inputs, operation.outputs
    is_of_counted = any(id(one) in counted for one in given)
    is_of_rows = any(map(has_rows, given)) and not TELLS.fullmatch(operation.type)
    if not (is_of_rows or is_of_counted):
        return False
    if PYTHON.fullmatch(operation.type):
        return True
    if WITHIN.fullmatch(operation.type):
        axis: Any = tf.get_static_value(given[1]) if operation.type.startswith("Cum") else -1
        return axis is None or has_rows(given[0], int(axis))
    if operation.type == PADS:
        return pads(operation)
    known = [one.shape.is_fully_defined() and one.dtype not in HANDLES for one in made]
    return bool(made) and all(known) and not any(map(has_rows, made))


def pads(operation: tf.Operation) -> bool:
    """Returns whether an operation of `PADS` makes all rows as long as the longest."""
    shape = operation.outputs[0].shape
    return not shape.rank or not shape[1:].is_fully_defined()


def carries(operation: tf.Operation, body: Any) -> bool:
    """Returns whether a loop that reads row after row takes along what it computes from them.

    Args:
        body: the graph of a loop; that of a branch takes nothing along.
    """
    if not operation.type.endswith("While"):
        return False
    pairs = list(zip(operation.inputs, body.inputs, strict=True))
    lists = {id(inner) for outer, inner in pairs if is_list_of_rows(outer)}
    read = [
        made
        for one in body.get_operations()
        if any(id(given) in lists or has_rows(given) for given in one.inputs)
        for made in one.outputs
        if one.type not in SHAPES and not may_have_rows(made) and made.dtype not in HANDLES
    ]
    for before, after in zip(body.inputs, body.outputs, strict=True):
        items = [one for user in before.consumers() for one in user.outputs]
        taken = (
            [x for x in items if x.dtype not in HANDLES] if before.dtype in HANDLES else [before]
        )
        if not has_rows(before) and depends_on(after, taken) and depends_on(after, read):
            return True
    return False


def is_list_of_rows(tensor: tf.Tensor) -> bool:
    """Returns whether a tensor is a list that has an item for each row."""
    return tensor.op.type == "TensorListFromTensor" and has_rows(tensor.op.inputs[0], 0)


def may_have_rows(tensor: tf.Tensor) -> bool:
    """Returns whether a tensor has rows, or a shape of which a trace does not know."""
    return has_rows(tensor) or not tensor.shape.is_fully_defined()


def has_rows(tensor: tf.Tensor, axis: int | None = None) -> bool:
    """Returns whether an axis of a tensor, or any of them, has rows, or some for each row."""
    if not tensor.shape.rank:
        return False
    sizes = tensor.shape if axis is None else [tensor.shape[axis]]
    return any(size and size % ROWS == 0 for size in sizes)

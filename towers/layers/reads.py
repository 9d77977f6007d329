"""The values of variables that towers read: each is read once, until it is assigned again.

A tape sums the gradients of all calls on each tower, before they travel to the variable.
"""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Iterator, Sequence
from typing import Any

import keras
import tensorflow as tf

from towers.ground.hooks import Hook
from towers.ground.private_apis import (
    gen_math_ops,
    get_default_graph,
    push_of_tapes,
    record_operation,
    stored_value,
    variable_accessed,
)
from towers.travel.gradients import Gradient, concat_rows, sum_gradients, sum_repeated_rows
from towers.travel.packed_sums import send

READS = "_reads_of_towers"  # A graph's attribute.
PUSH_TAPE, ADD = Hook(*push_of_tapes()), Hook(gen_math_ops, "add_n")
NUM_TAPES = contextvars.ContextVar("num_tapes", default=0)


@contextlib.contextmanager
def tapes_counted() -> Iterator[None]:
    """The scope that counts the tapes of this thread, which add on the device of what they add."""

    def push(original: Any, tape: tf.GradientTape) -> None:
        NUM_TAPES.set(NUM_TAPES.get() + 1)
        original(tape)

    def add(original: Any, values: Sequence[tf.Tensor], name: str | None = None) -> tf.Tensor:
        devices = {"" if tf.executing_eagerly() else value.device for value in values}
        with tf.device(*devices) if len(devices) == 1 and "" not in devices else alone():
            return original(values, name)

    alone = contextlib.nullcontext
    with PUSH_TAPE.through(push), ADD.through(add):
        yield


class Reads:
    """The values of variables on the towers.

    Args:
        devices: the towers' devices.
        graph: the graph that reads them, which is traced at the moment; None without one.
    """

    def __init__(self, devices: Sequence[str], graph: tf.Graph | None = None):
        self.devices, self._graph = devices, graph
        self._copies: dict[str, list[tf.Tensor]] = {}  # By the name of the handle in the graph.
        self._watched: dict[str, tuple[int, list[tf.Tensor]]] = {}  # With the number of tapes.
        self._handles: dict[int, str] = {}
        self._num_seen = 0

    def copies(self, variables: Sequence[keras.Variable]) -> list[list[tf.Tensor]]:
        """Returns for each variable its value on each tower."""
        self._forget_assigned()
        return [self._copy(variable) for variable in variables]

    def watched(
        self, variable: keras.Variable, copies: Sequence[tf.Tensor], *, sums_rows: bool
    ) -> list[tf.Tensor]:
        """Returns the value on each tower again, as all tapes that record now know it.

        There is none without a graph, or where the graph does not read the variable itself.
        """
        handle, stored = self._handles.get(id(variable)), stored_value(variable)
        if handle is None:
            return []
        num_tapes, known = self._watched.get(handle, (-1, []))
        if num_tapes != NUM_TAPES.get():
            known = [send(*pair) for pair in zip(copies, self.devices, strict=True)]
            self._watched[handle] = NUM_TAPES.get(), known
            variable_accessed(stored)

            def backward(*gradients: Gradient) -> list[Gradient]:
                return [sum_on(stored.device, gradients, sums_rows=sums_rows)]

            record_operation("ReadOnTowers", known, [stored.handle], backward)
        return known

    def _copy(self, variable: keras.Variable) -> list[tf.Tensor]:
        known = self._copies.get(self._handles.get(id(variable), ""))
        if known is not None:
            return known
        value = tf.convert_to_tensor(stored_value(variable))
        by_device = {device: send(value, device) for device in self.devices}
        copies = [by_device[device] for device in self.devices]
        if self._graph is not None and value.op.type == "ReadVariableOp":
            handle = value.op.inputs[0].name
            self._handles[id(variable)], self._copies[handle] = handle, copies
        return copies

    def _forget_assigned(self) -> None:
        """Forgets the values of variables that ops since the last time may have assigned."""
        if self._graph is None:
            return
        operations: list[Any] = self._graph.get_operations()
        for operation in operations[self._num_seen :]:
            if operation.type != "ReadVariableOp" and operation.type != "ResourceGather":
                for tensor in operation.inputs:
                    if tensor.dtype == tf.resource:
                        self._copies.pop(tensor.name, None)
                        self._watched.pop(tensor.name, None)
        self._num_seen = len(operations)


def reads_of(devices: Sequence[str]) -> Reads:
    """Returns what was read in the current graph; nothing is kept without one."""
    devices = tuple(devices)
    if tf.executing_eagerly():
        return Reads(devices)
    graph = get_default_graph()
    reads: Reads | None = getattr(graph, READS, None)
    if reads is None or reads.devices != devices:
        reads = Reads(devices, graph)
        setattr(graph, READS, reads)
    return reads


def sum_on(device: str, gradients: Sequence[Gradient], *, sums_rows: bool) -> Gradient:
    """Returns the sum of a variable's gradients on all towers, on the variable's device."""
    with tf.device(device):
        slices = [one for one in gradients if isinstance(one, tf.IndexedSlices)]
        if len(slices) < len(gradients):
            return sum_gradients([[one] for one in gradients])[0]
        return sum_repeated_rows(concat_rows(slices)) if sums_rows else concat_rows(slices)

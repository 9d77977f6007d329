"""The values of variables that towers read: each is read once, until it is assigned again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

from towers.ground.private_apis import get_default_graph, stored_value
from towers.layers.rows import on

READS = "_reads_of_towers"  # A graph's attribute.


class Reads:
    """The values of variables on the towers.

    Args:
        devices: the towers' devices.
        graph: the graph that reads them, which is traced at the moment; None without one.

    Attributes:
        devices: as given.
    """

    def __init__(self, devices: Sequence[str], graph: tf.Graph | None = None):
        self.devices, self._graph = devices, graph
        self._copies: dict[str, list[tf.Tensor]] = {}  # By the name of the handle in the graph.
        self._handles: dict[int, str] = {}
        self._num_seen = 0

    def copies(self, variables: Sequence[keras.Variable]) -> list[list[tf.Tensor]]:
        """Returns for each variable its value on each tower."""
        self._forget_assigned()
        return [self._copy(variable) for variable in variables]

    def _copy(self, variable: keras.Variable) -> list[tf.Tensor]:
        known = self._copies.get(self._handles.get(id(variable), ""))
        if known is not None:
            return known
        value = tf.convert_to_tensor(stored_value(variable))
        by_device = {device: on(device, value) for device in self.devices}
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

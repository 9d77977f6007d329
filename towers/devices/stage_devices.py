"""The devices of ops where a tower has several: by the label of a stage, or beside the inputs."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence

import tensorflow as tf

from towers.devices.stage_labels import stage_in
from towers.devices.stages import device_name
from towers.ground.private_apis import get_default_graph

UNKNOWN = 1024  # Stands for an unknown dimension where sizes are compared.


def device_of_stage(devices: Sequence[str]) -> Callable[[tf.Operation], str]:
    """Returns the function from the ops of a tower to their devices, for the current graph.

    An op runs on the device of the stage that its name tells. Ops of loops and branches run where
    these are made. What has no label, such as the sum of gradients that arrive from several places,
    runs beside its largest input.

    Args:
        devices: the tower's devices, one for each stage.
    """
    graph, names = get_default_graph(), list(map(device_name, devices))
    if len(names) == 1:
        return lambda _: names[0]

    def choose(op: tf.Operation) -> str:
        inside = op.graph is graph
        stage = stage_in(op.name if inside else graph.get_name_scope())
        if stage is not None and stage < len(names):
            return names[stage]
        return (device_beside(op, names) if inside else None) or names[0]

    return choose


@contextlib.contextmanager
def beside_inputs(devices: Sequence[str]) -> Iterator[None]:
    """The scope in which an op runs on the device of its variable, or of its largest input.

    Args:
        devices: the devices among which it runs; the first if its inputs are on none of them.
    """
    names = list(map(device_name, devices))

    def choose(op: tf.Operation) -> str:
        return op.device or device_beside(op, names) or names[0]

    with get_default_graph().device(choose):
        yield


def device_beside(op: tf.Operation, names: Sequence[str]) -> str | None:
    """Returns the device of the op's variable, or of its largest input, if it is one of these."""
    largest, found = -1, None
    for tensor in op.inputs:
        device = device_of(tensor)
        if device not in names:
            continue
        if tensor.dtype == tf.resource:
            return device
        if size_of(tensor) > largest:
            largest, found = size_of(tensor), device
    return found


def device_of(tensor: tf.Tensor) -> str:
    """Returns the device of a tensor; that of what a function takes from around it."""
    graph = getattr(tensor, "graph", None)
    if tensor.op.type == "Placeholder":  # Its own device means nothing.
        for outer, inner in getattr(graph, "captures", ()):
            if inner is tensor:
                return device_of(outer) if tf.is_symbolic_tensor(outer) else known(outer.device)
    if tensor.op.type == "ReadVariableOp":  # TensorFlow leaves its place to the variable.
        return device_of(tensor.op.inputs[0])
    return known(tensor.op.device)


def known(device: str) -> str:
    """Returns a device's short name; nothing for no device."""
    return device_name(device) if device else ""


def size_of(tensor: tf.Tensor) -> int:
    """Returns the number of a tensor's elements, as far as it is known."""
    if tensor.shape.rank is None:
        return UNKNOWN
    size = 1
    for length in tensor.shape:
        size *= UNKNOWN if length is None else length
    return size

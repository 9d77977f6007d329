"""The device of each op, read from the graphs that TensorFlow executed."""

from __future__ import annotations

import collections
import contextlib
from collections.abc import Iterable, Iterator

import tensorflow as tf

from towers.ground.private_apis import NodeDef, context

OpDevices = collections.Counter[tuple[str, str]]  # Of (op type, short device name).
Placed = list[tuple[NodeDef, str]]


@contextlib.contextmanager
def record_op_devices() -> Iterator[OpDevices]:
    """Yields a counter of (op type, device) that is filled when the scope ends.

    It counts the ops that `record_placed_nodes` lists.
    """
    counts: OpDevices = collections.Counter()
    with record_placed_nodes() as nodes:
        yield counts
    counts.update((node.op, device) for node, device in nodes)


@contextlib.contextmanager
def record_placed_nodes() -> Iterator[Placed]:
    """Yields a list of (op, short name of its device) that is filled when the scope ends.

    It lists the ops of functions that run for the first time in the scope, the bodies of their
    loops and branches included.
    """
    nodes: Placed = []
    context.enable_graph_collection()
    try:
        yield nodes
        metadata = context.export_run_metadata()
    finally:
        context.disable_graph_collection()  # Or every later function's graph would be kept.
    for graphs in metadata.function_graphs:
        for graph in graphs.partition_graphs:
            nodes += [(node, short_device(node.device)) for node in graph.node]


def short_device(device: str) -> str:
    """Returns `CPU:0` for `/job:localhost/replica:0/task:0/device:CPU:0`."""
    return device.rsplit("device:", 1)[-1].lstrip("/")


def device_name(device: str) -> str:
    """Returns the short name of a device as TensorFlow writes it into ops; nothing for none.

    >>> device_name("/GPU:1"), device_name("/job:localhost/replica:0/task:0/device:CPU:0")
    ('/device:GPU:1', '/device:CPU:0')
    """
    spec = tf.DeviceSpec.from_string(device)
    return tf.DeviceSpec(
        device_type=spec.device_type, device_index=spec.device_index or 0
    ).to_string()


def format_op_devices(counts: OpDevices) -> Iterable[str]:
    """Yields a line per device: the number of ops of each type, most frequent first."""
    devices = sorted({device for _, device in counts})
    for device in devices:
        ops = sorted(
            ((count, op) for (op, where), count in counts.items() if where == device),
            reverse=True,
        )
        yield f"{device}: " + ", ".join(f"{op} {count}" for count, op in ops)

"""The device of each op, read from the graphs that TensorFlow executed."""

from __future__ import annotations

import collections
import contextlib
from collections.abc import Iterable, Iterator

import tensorflow as tf

from towers.ground.private_apis import NodeDef, RunMetadata, context

OpDevices = collections.Counter[tuple[str, str]]  # Of (op type, short device name).


@contextlib.contextmanager
def record_op_devices() -> Iterator[OpDevices]:
    """Yields a counter of (op type, device) that is filled when the scope ends.

    It counts the ops of functions that run for the first time in the scope, the bodies of their
    loops and branches included.
    """
    counts: OpDevices = collections.Counter()
    context.enable_run_metadata()
    context.export_run_metadata()  # Discards earlier functions.
    try:
        yield counts
        metadata = context.export_run_metadata()
    finally:
        context.disable_run_metadata()
    for node, device in placed_nodes(metadata):
        counts[node.op, device] += 1


def placed_nodes(metadata: RunMetadata) -> Iterator[tuple[NodeDef, str]]:
    """Yields each op of the graphs that ran, with the short name of its device."""
    for graphs in metadata.function_graphs:
        for graph in graphs.partition_graphs:
            for node in graph.node:
                yield node, short_device(node.device)


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

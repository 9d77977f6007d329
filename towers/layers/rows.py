"""Rows of a tensor in parts, one on each tower, and the tensor that they make together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from towers.batches.shards import take_rows
from towers.ground.private_apis import get_default_graph
from towers.travel.pairs import part_sizes

PARTS = "_parts_on_towers"


class Cut(NamedTuple):
    """How rows are cut over towers.

    Attributes:
        devices: the towers' devices.
        sizes: int32 scalars, the rows of each tower; a tower without any holds one that counts
            nothing, since layers fail on zero rows.
        multiple: how many rows there are for each row of the call that was cut first.
    """

    devices: tuple[str, ...]
    sizes: tuple[tf.Tensor, ...]
    multiple: int = 1

    def times(self, multiple: int) -> Cut:
        """Returns the cut of a tensor with several rows for each of these."""
        if multiple == 1:
            return self
        sizes = tuple(size * multiple for size in self.sizes)
        return Cut(self.devices, sizes, self.multiple * multiple)


class Parts(NamedTuple):
    """The parts of a tensor on the towers; they hold at least one row each."""

    cut: Cut
    tensors: list[tf.Tensor]


def parts_of(tensor: tf.Tensor, devices: Sequence[str]) -> Parts | None:
    """Returns the parts of which a tensor was joined; None if it was not, or on other towers."""
    parts = getattr(tensor, PARTS, None)
    graph = None if tf.executing_eagerly() else get_default_graph()
    if parts is None or parts.cut.devices != tuple(devices):
        return None
    same_graph = graph is None or getattr(parts.tensors[0], "graph", None) is graph
    return parts if same_graph else None


def even_cut(tensor: tf.Tensor, devices: Sequence[str]) -> Cut:
    """Returns the cut of a tensor's rows into parts whose sizes differ by at most one."""
    return Cut(tuple(devices), tuple(part_sizes(tf.shape(tensor)[0], len(devices))))


def cut_rows(tensor: tf.Tensor, cut: Cut) -> list[tf.Tensor]:
    """Returns the rows of each tower, on its device."""
    known = parts_of(tensor, cut.devices)
    if known is not None and known.cut.multiple == cut.multiple:
        return list(known.tensors)
    parts, start = [], tf.zeros([], tf.int32)
    for size in cut.sizes:
        parts.append(take_rows(tensor, start, size))
        start += size
    return [on(device, part) for device, part in zip(cut.devices, parts, strict=True)]


def join_rows(parts: Sequence[tf.Tensor], cut: Cut, device: str) -> tf.Tensor:
    """Returns the tensor that the parts make together, on a device.

    It remembers its parts: where only another call of the towers uses it, nothing travels.
    """
    with tf.device(device):
        counted = [part[:size] for part, size in zip(parts, cut.sizes, strict=True)]
        joined = tf.concat(counted, axis=0)
    setattr(joined, PARTS, Parts(cut, list(parts)))
    return joined


def on(device: str, tensor: Any) -> Any:
    """Returns the tensor on a device."""
    with tf.device(device):
        return tf.identity(tensor)

"""Rows of a tensor in parts, one on each tower, and the tensor that they make together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import tensorflow as tf

from towers.batches.shards import cut_rows as cut_batch
from towers.ground.private_apis import get_default_graph
from towers.travel.pairs import part_sizes

PARTS = "_parts_on_towers"


class Cut(NamedTuple):
    """How rows are cut over towers.

    Attributes:
        devices: the towers' devices.
        sizes: int32 scalars, the rows of each tower; a tower without any holds one that counts
            nothing, since layers fail on zero rows.
        multiple: how many rows there are for each row of the call that was cut first; None if that
            is not known.
    """

    devices: tuple[str, ...]
    sizes: tuple[tf.Tensor, ...]
    multiple: int | None = 1

    def of(self, parts: Sequence[tf.Tensor], multiple: int | None) -> Cut:
        """Returns the cut of a tensor with these parts, computed from tensors that are cut so.

        Args:
            parts: the tensor's parts on the towers.
            multiple: how many rows there are for each of these; None if that is not known.
        """
        if multiple == 1:
            return self
        pairs = zip(parts, self.sizes, strict=True)
        sizes = tuple(tf.where(size > 0, tf.shape(part)[0], 0) for part, size in pairs)
        if multiple is None or self.multiple is None:
            return Cut(self.devices, sizes, None)
        return Cut(self.devices, sizes, self.multiple * multiple)

    def is_that_of(self, tensor: tf.Tensor) -> bool:
        """Returns whether a tensor was joined from parts that are cut so."""
        known = parts_of(tensor, self.devices)
        return known is not None and known.cut.multiple == self.multiple


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
    """Returns the rows of each tower; those that it computed itself are on its device already."""
    if cut.is_that_of(tensor):
        return list(getattr(tensor, PARTS).tensors)
    return [shard.batch for shard in cut_batch(tensor, cut.sizes)]


def join_rows(parts: Sequence[tf.Tensor], cut: Cut, device: str) -> tf.Tensor:
    """Returns the tensor that the parts make together, on a device.

    It remembers its parts, unless nothing tells other tensors with such parts: where only another
    call of the towers uses it, nothing travels.
    """
    with tf.device(device):
        counted = [first_rows(*pair) for pair in zip(parts, cut.sizes, strict=True)]
        joined = tf.concat(counted, axis=0)
    if cut.multiple is not None:
        setattr(joined, PARTS, Parts(cut, list(parts)))
    return joined


def same_parts(tensor: tf.Tensor) -> tf.Tensor:
    """Returns another tensor with the same values, joined of the same parts if it was joined."""
    same = tf.identity(tensor)
    if hasattr(tensor, PARTS):
        setattr(same, PARTS, getattr(tensor, PARTS))
    return same


def first_rows(tensor: tf.Tensor, size: tf.Tensor) -> tf.Tensor:
    """Returns `tensor[:size]`, which TensorFlow would make of three times as many ops."""
    if tensor.shape.rank is None:
        return tensor[:size]
    others = tensor.shape.rank - 1
    first = tf.slice(tensor, [0] * (1 + others), [size, *[-1] * others])
    first.set_shape([None, *tensor.shape[1:]])  # Which a slice of an unknown size forgets.
    return first

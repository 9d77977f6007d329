"""Tensors in parts on the towers: how rows are cut, and how values become one tensor again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from towers.batches.shards import DIFFERING_CALLS, check, with_own_memory
from towers.batches.shards import cut_rows as cut_batch
from towers.ground.host import HOST
from towers.ground.private_apis import get_default_graph, in_xla
from towers.travel.pairs import part_sizes

PARTS = "_parts_on_towers"
# How the values of the towers become one tensor.
KINDS = CONCATENATE, MEAN, SUM, FIRST = "concatenate", "mean", "sum", "first"
VARIABLE, TABLE, OWN = "variable", "table", "own"


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


def checks_of(tensors: Sequence[tf.Tensor], cut: Cut) -> list[tf.Operation]:
    """Returns what fails in a graph unless tensors have equally many rows, if that is not known."""
    parts = [parts_of(one, cut.devices) for one in tensors]
    is_known = all(one.shape[:1].is_fully_defined() for one in tensors)
    if len(tensors) == 1 or is_known or all(each and each.cut is cut for each in parts):
        return []
    message = (
        f"{DIFFERING_CALLS}. Received the numbers of rows below for tensors of shapes "
        f"{', '.join(str(one.shape) for one in tensors)}. Give all of them equally many, or begin "
        "with a batch in which the numbers differ."
    )
    pairs = zip(tensors, parts, strict=True)
    counts = [tf.add_n(each.cut.sizes) if each else tf.shape(one)[0] for one, each in pairs]
    with tf.device(HOST):
        return [check(tf.reduce_all(tf.equal(counts, counts[0])), message, tf.stack(counts))]


def cut_rows(tensor: tf.Tensor, cut: Cut) -> list[tf.Tensor]:
    """Returns the rows of each tower; those that it computed itself are on its device already."""
    if cut.is_that_of(tensor):
        return list(getattr(tensor, PARTS).tensors)
    return [shard.batch for shard in cut_batch(tensor, cut.sizes)]


def cut_inputs(tensor: tf.Tensor, cut: Cut) -> list[tf.Tensor]:
    """Returns the rows of each tower; in a graph, in memory that is not that of a user's array.

    A GPU has a copy anyway, but of int32 numbers, which stay on the host.
    """
    parts = cut_rows(tensor, cut)
    if cut.is_that_of(tensor) or tf.executing_eagerly() or in_xla():
        return parts
    for index, device in enumerate(cut.devices):
        if tensor.dtype == tf.int32 or "GPU" not in device:
            with tf.device(device):
                parts[index] = with_own_memory(parts[index])
    return parts


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


class Way(NamedTuple):
    """How the towers' values of one tensor become one.

    Attributes:
        kind: `CONCATENATE`; `MEAN`, weighted by rows; `SUM`; `FIRST`, where all have the same;
            `VARIABLE`, a sum where a variable is; `TABLE`, that of a table in which all towers look
            up the same rows; `OWN`, of one tower alone.
        multiple: how many rows there are for each row of the call; None if that is not known.
        device: of the variable.
    """

    kind: str
    multiple: int | None = 1
    device: str = ""


class Source(NamedTuple):
    """A tensor from which the towers compute.

    Attributes:
        outer: the tensor, or the handle of a variable.
        way: how its gradients become one.
        inner: on each tower, its rows or its value there; None where it has none.
    """

    outer: tf.Tensor
    way: Way
    inner: Sequence[Any]


def sources_read(tapes: Sequence[tf.GradientTape]) -> Iterator[Source]:
    """Yields the variables that towers read themselves, such as a `tf.Variable` of a layer."""
    for variable in dict.fromkeys(v.ref() for tape in tapes for v in tape.watched_variables()):
        one = variable.deref()
        yield Source(one.handle, Way(VARIABLE, 1, one.device), [one] * len(tapes))


def value_of(source: Source) -> tf.Tensor:
    """Returns the tensor of a source, or the value of its variable."""
    if source.outer.dtype != tf.resource:
        return source.outer
    return tf.raw_ops.ReadVariableOp(resource=source.outer, dtype=source.inner[0].dtype)


def is_differentiable(value: Any) -> bool:
    """Returns whether a value is a tensor, or the handle of a variable, that has a gradient."""
    return isinstance(value, tf.Tensor) and (
        value.dtype.is_floating or value.dtype.is_complex or value.dtype == tf.resource
    )

"""Vectors: the tensors of a dtype in one, so that they travel together, and apart again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from towers.travel.pairs import add_in_pairs

# TensorFlow cuts a vector without a copy where a piece begins at a multiple of Eigen's alignment,
# at most 64 bytes; GPUs read whole lines of 128.
ALIGNMENT = 128


def send_together(nest: Any, source: str, targets: Sequence[str]) -> list[Any]:
    """Returns the nest on each of the target devices; it travels as one vector of each dtype.

    Args:
        nest: tensors that are on the source device, and None.
        source: the device.
        targets: devices; to the source itself nothing travels.
    """
    parts = tf.nest.flatten(nest)
    present = [part for part in parts if part is not None]
    if not present or all(target == source for target in targets):
        return [nest] * len(targets)
    with tf.device(source):
        vectors = join_by_dtype(present)
    sent = []
    for target in targets:
        with tf.device(target):
            values = iter(cut_by_dtype(list(map(tf.identity, vectors)), present))
        copies = [None if part is None else next(values) for part in parts]
        sent.append(nest if target == source else tf.nest.pack_sequence_as(nest, copies))
    return sent


def add_and_stack(nests: Sequence[Any], sources: Sequence[str], target: str) -> tuple[Any, Any]:
    """Returns the sum of the nests, and the nests as one whose tensors begin with a dimension more.

    Each travels to the target device as one vector of each dtype. There, whole vectors are added
    and stacked, so that a GPU starts a few kernels, however many nests and tensors there are.

    Args:
        nests: nests of the same structure, with tensors of the same shapes, and None.
        sources: where the tensors of each nest are.
        target: the device.
    """
    parts = tf.nest.flatten(nests[0])
    like = [part for part in parts if part is not None]
    rows = []
    for nest, source in zip(nests, sources, strict=True):
        with tf.device(source):
            rows.append(join_by_dtype([part for part in tf.nest.flatten(nest) if part is not None]))
    with tf.device(target):
        columns = [list(map(tf.identity, column)) for column in zip(*rows, strict=True)]
        sums = cut_by_dtype([add_in_pairs(tf.add, column) for column in columns], like)
        stacks = cut_by_dtype(list(map(tf.stack, columns)), like)

    def as_nest(tensors: list[tf.Tensor]) -> Any:
        values = iter(tensors)
        filled = [None if part is None else next(values) for part in parts]
        return tf.nest.pack_sequence_as(nests[0], filled)

    return as_nest(sums), as_nest(stacks)


def join_by_dtype(tensors: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    """Returns one vector for each dtype, with the entries of its tensors, on the current device.

    >>> vectors = join_by_dtype([tf.ones([2]), tf.constant(3), tf.zeros([])])
    >>> [vector.numpy().tolist() for vector in vectors]
    [[1.0, 1.0, 0.0], [3]]
    """
    return [
        tf.concat([tf.reshape(tensors[index], [-1]) for index in indices], axis=0)
        for indices in indices_by_dtype(tensors)
    ]


def cut_by_dtype(vectors: Sequence[tf.Tensor], like: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    """Returns the tensors that `join_by_dtype` joined, on the current device.

    Args:
        vectors: as `join_by_dtype` returns them, sums of such, or such stacked: [rows, entries].
        like: tensors with the dtypes and the shapes, without the dimension of the rows.
    """
    results: list[Any] = [None] * len(like)
    for vector, indices in zip(vectors, indices_by_dtype(like), strict=True):
        sizes, rows = sizes_of([like[index] for index in indices]), vector.shape[:-1]
        for index, piece in zip(indices, tf.split(vector, sizes, axis=-1), strict=True):
            shape = shape_of(like[index])
            shape = tf.concat([rows, shape], axis=0) if rows.rank else shape
            results[index] = tf.reshape(piece, shape)
            results[index].set_shape(rows.concatenate(like[index].shape))
    return results


def join_aligned(tensors: Sequence[tf.Tensor]) -> tf.Tensor:
    """Returns the entries of tensors of one dtype in a new vector, each at an aligned position.

    So `cut_aligned` copies nothing. The shapes are known.

    >>> join_aligned([tf.ones([2]), tf.ones([3])]).shape
    TensorShape([64])
    """
    parts = []
    for tensor in tensors:
        size = tensor.shape.num_elements()
        parts.append(tf.reshape(tensor, [-1]))
        if aligned_size(tensor) > size:
            parts.append(tf.zeros([aligned_size(tensor) - size], tensor.dtype))
    # A single tensor would be its own memory, such as a variable's.
    return tf.concat(parts, axis=0) if len(parts) > 1 else tf.raw_ops.DeepCopy(x=parts[0])


def cut_aligned(vector: tf.Tensor, like: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    """Returns the tensors that `join_aligned` joined, on the current device.

    Args:
        vector: the vector, or a sum of such.
        like: tensors with the dtype and the shapes.
    """
    results, start = [], 0
    for tensor in like:
        piece = tf.slice(vector, [start], [tensor.shape.num_elements()])
        results.append(tf.reshape(piece, tensor.shape))
        start += aligned_size(tensor)
    return results


def join_pack(tensors: Sequence[tf.Tensor]) -> tf.Tensor:
    """Returns the vector of `join_aligned`, or a single tensor as a vector, without a copy."""
    return join_aligned(tensors) if len(tensors) > 1 else tf.reshape(tensors[0], [-1])


def cut_pack(vector: tf.Tensor, like: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    """Returns the tensors that `join_pack` joined; arguments as in `cut_aligned`."""
    if len(like) > 1:
        return cut_aligned(vector, like)
    return [tf.reshape(vector, like[0].shape)]


def aligned_size(tensor: tf.Tensor) -> int:
    """Returns how many entries a tensor takes in a vector of aligned pieces."""
    entries = ALIGNMENT // tensor.dtype.size
    return int(-(-tensor.shape.num_elements() // entries) * entries)


def indices_by_dtype(tensors: Sequence[tf.Tensor]) -> list[list[int]]:
    """Returns, for each dtype, the indices of its tensors."""
    indices: dict[tf.DType, list[int]] = {}
    for index, tensor in enumerate(tensors):
        indices.setdefault(tensor.dtype, []).append(index)
    return list(indices.values())


def sizes_of(tensors: Sequence[tf.Tensor]) -> Any:
    """Returns the number of entries of each tensor: numbers, or a tensor if one is unknown."""
    sizes = [tensor.shape.num_elements() for tensor in tensors]
    if None not in sizes:
        return sizes
    return tf.stack([tf.reduce_prod(shape_of(tensor)) for tensor in tensors])


def shape_of(tensor: tf.Tensor) -> Any:
    """Returns the tensor's shape, or an int32 tensor if it is unknown; the tensor stays there."""
    if tensor.shape.is_fully_defined():
        return tensor.shape
    with tf.device(tensor.device or None):
        return tf.shape(tensor)

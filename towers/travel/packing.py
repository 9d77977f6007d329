"""Packing: the tensors of a dtype as one vector, so that they travel together, and apart again.

Variables travel so from the CPU to towers on GPUs, and gradients back.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import keras
import tensorflow as tf

from towers.ground.host import device_type
from towers.travel.gradients import Gradient, identity
from towers.travel.pairs import add_in_pairs

# TensorFlow cuts a vector without a copy where a piece begins at a multiple of Eigen's alignment,
# at most 64 bytes; GPUs read whole lines of 128.
ALIGNMENT = 128
PACK_BYTES = 4 * 2**20


def upload_for(
    variables: Sequence[keras.Variable], sources: Sequence[str], towers: Sequence[str]
) -> Upload | None:
    """Returns the upload that the towers share; None if each reads a copy of its own."""
    if len(sources) > 1:
        return None
    with tf.name_scope("inputs"), tf.device(sources[0]):
        return Upload(variables, sources[0], towers)


def needs_upload(source: str, tower: str) -> bool:
    """Returns whether a tower's values travel packed: from the CPU to a GPU.

    To a tower on a CPU nothing travels, and a pack would be a copy for nothing.
    """
    kinds = [device_type(device) for device in (source, tower)]
    return kinds == ["CPU", "GPU"]


class Upload:
    """The values of variables, read once on the current device, and joined for towers on GPUs.

    The vectors are made by an op whose result goes to GPUs only, so that TensorFlow puts it into
    page-locked memory: a GPU fetches it without help from the host. A variable's own memory is not
    page-locked, and each would be a copy of its own.

    What is no floating-point number stays out: it is read alone.
    """

    def __init__(self, variables: Sequence[keras.Variable], source: str, towers: Sequence[str]):
        self._source = source
        self._variables = list(filter(is_floating, variables))
        values = [tf.convert_to_tensor(variable.value) for variable in self._variables]
        is_needed = any(needs_upload(source, tower) for tower in towers)
        self._groups = [
            (join_aligned([values[index] for index in indices]), indices)
            for indices in (indices_by_dtype(values) if is_needed else ())
        ]
        self._values = values

    def values(self, device: str) -> dict[int, Any]:
        """Returns each value on the current device, by the variable's id.

        Args:
            device: the tower's device.
        """
        values: dict[int, Any] = {}
        if not needs_upload(self._source, device):
            pairs = zip(self._variables, self._values, strict=True)
            return {id(variable): tf.identity(value) for variable, value in pairs}
        for vector, indices in self._groups:
            pieces = cut_aligned(tf.identity(vector), [self._values[index] for index in indices])
            for index, piece in zip(indices, pieces, strict=True):
                values[id(self._variables[index])] = piece
        return values


def is_floating(variable: keras.Variable) -> bool:
    """Returns whether a variable is of floating-point numbers and not empty."""
    return tf.as_dtype(variable.dtype).is_floating and variable.shape.num_elements() > 0


def download(gradients: Sequence[Gradient], tower: str, target: str) -> list[Gradient]:
    """Returns a tower's gradients on another device.

    They travel in packs of a few megabytes, the last variable's gradient first, so that the first
    packs travel while other gradients are computed. A larger gradient, a sparse one, and one of
    unknown shape travels alone.
    """
    arrived: list[Gradient] = [None] * len(gradients)
    for pack in plan_packs([gradients], PACK_BYTES):
        parts: list[Any] = [gradients[index] for index in pack]
        if len(pack) == 1:
            with tf.device(target):
                arrived[pack[0]] = identity(parts[0])
            continue
        with tf.device(tower):
            vector = join_aligned(parts)
        with tf.device(target):
            pieces = cut_aligned(tf.identity(vector), parts)
        for index, piece in zip(pack, pieces, strict=True):
            arrived[index] = piece
    return arrived


def plan_packs(
    tower_gradients: Sequence[Sequence[Gradient]], pack_bytes: int
) -> Iterator[list[int]]:
    """Yields the indices of the gradients in each pack, the last variable's first.

    A pack with a quarter of the bytes that it may have is full: it does not wait for a gradient
    that is computed later. A sparse gradient is a pack of its own, and so is one that some towers
    lack.
    """
    pack: list[int] = []
    bytes_left, dtype = pack_bytes, None
    for index in reversed(range(len(tower_gradients[0]))):
        gradients: list[Any] = [row[index] for row in tower_gradients]
        size = num_bytes(gradients)
        if size is None:
            yield [index]
            continue
        if pack and (size > bytes_left or gradients[0].dtype != dtype):
            yield pack
            pack, bytes_left = [], pack_bytes
        pack.append(index)
        bytes_left, dtype = bytes_left - size, gradients[0].dtype
        if pack_bytes - bytes_left >= pack_bytes / 4:
            yield pack
            pack, bytes_left = [], pack_bytes
    if pack:
        yield pack


def num_bytes(gradients: Sequence[Gradient]) -> int | None:
    """Returns a gradient's size; None unless all towers have a tensor of known shape."""
    first: Any = gradients[0]
    if not all(isinstance(gradient, tf.Tensor) for gradient in gradients):
        return None
    elements = first.shape.num_elements()
    return None if elements is None else elements * first.dtype.size


class Nest:
    """A nest as the list of its tensors, without what is None.

    Args:
        like: a nest; those that are flattened have its structure.
        expand: whether values and indices of sparse tensors are apart.
    """

    def __init__(self, like: Any, *, expand: bool = True):
        self._like, self._expand = like, expand

    def flatten(self, nest: Any) -> list[Any]:
        """Returns the tensors of a nest."""
        leaves = tf.nest.flatten(nest, expand_composites=self._expand)
        return [leaf for leaf in leaves if leaf is not None]

    def pack(self, tensors: Iterable[Any]) -> Any:
        """Returns the nest of such a list."""
        values = iter(tensors)
        leaves = tf.nest.flatten(self._like, expand_composites=self._expand)
        packed = [None if leaf is None else next(values) for leaf in leaves]
        return tf.nest.pack_sequence_as(self._like, packed, expand_composites=self._expand)

    @property
    def tensors(self) -> list[Any]:
        """The tensors of the nest that was given."""
        return self.flatten(self._like)


def send_together(nest: Any, source: str, targets: Sequence[str]) -> list[Any]:
    """Returns the nest on each of the target devices; it travels as one vector of each dtype.

    Args:
        nest: tensors that are on the source device, and None.
        targets: devices; to the source itself nothing travels.
    """
    form = Nest(nest)
    if not form.tensors or all(target == source for target in targets):
        return [nest] * len(targets)
    with tf.device(source):
        vectors = join_by_dtype(form.tensors)
    sent = []
    for target in targets:
        with tf.device(target):
            values = cut_by_dtype(list(map(tf.identity, vectors)), form.tensors)
        sent.append(nest if target == source else form.pack(values))
    return sent


def add_and_stack(nests: Sequence[Any], sources: Sequence[str], target: str) -> tuple[Any, Any]:
    """Returns the sum of the nests, and the nests as one whose tensors begin with a dimension more.

    Each travels to the target device as one vector of each dtype. There, whole vectors are added
    and stacked, so that a GPU starts a few kernels, however many nests and tensors there are.

    Args:
        nests: nests of the same structure, with tensors of the same shapes, and None.
    """
    form, rows = Nest(nests[0]), []
    for nest, source in zip(nests, sources, strict=True):
        with tf.device(source):
            rows.append(join_by_dtype(form.flatten(nest)))
    with tf.device(target):
        columns = [list(map(tf.identity, column)) for column in zip(*rows, strict=True)]
        sums = [add_in_pairs(tf.add, column) for column in columns]
        stacks = list(map(tf.stack, columns))
        return tuple(form.pack(cut_by_dtype(one, form.tensors)) for one in (sums, stacks))


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
            if rows.rank:
                known = rows if rows.is_fully_defined() else tf.shape(vector)[:-1]
                shape = tf.concat([known, shape], axis=0)
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

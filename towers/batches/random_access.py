"""Batches of data with random access: arrays, and anything with a length and numbered examples."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeAlias, runtime_checkable

import numpy as np
import tensorflow as tf

from towers.ground.epochs import Epochs, assembled, even_layout

NUM_PREFETCHED = 2  # Batches; they are fetched in one thread, since few sources are made for more.

# An array, or a tuple or a dictionary of structures; TensorFlow's own are recursive too.
Structure: TypeAlias = object
Fetch: TypeAlias = Callable[[np.ndarray], list[np.ndarray]]


@runtime_checkable
class RandomAccess(Protocol):
    """A source of examples, such as a list or a `datasets.Dataset`."""

    def __len__(self) -> int:
        """Returns the number of examples."""

    def __getitem__(self, index: int, /) -> Structure:
        """Returns an example."""


def random_access_batches(
    source: RandomAccess, batch_size: int, *, shuffle: bool = False, seed: int = 0
) -> Epochs:
    """Returns the batches of a source with random access.

    Args:
        source: an array, or a tuple or a dictionary of arrays with a row for each example; or
            anything else with `__len__` and `__getitem__` (and `__getitems__`, if it has that),
            whose examples are numbers, texts, arrays, or tuples or dictionaries of them.
        batch_size: examples in a global batch; the last one of an epoch may be smaller.
        shuffle: whether each epoch has an order of its own, which follows from the seed.
        seed: the seed of the order.

    Raises:
        ValueError: the source is empty, its arrays differ in length, or the batch size is below 1.
    """
    if not isinstance(batch_size, int | np.integer):
        raise ValueError(f"batch_size must be a whole number. Received {batch_size!r}.")
    if isinstance(source, str | bytes):
        raise ValueError(
            f"The data must be examples. Received the text {source[:60]!r}; read the file first."
        )
    if isinstance(source, np.ndarray | tf.Tensor | tuple | dict):
        fetch, structure, count = open_arrays(source)
    else:
        fetch, structure, count = open_examples(source)
    load = assembled(lambda batch: fetch(batch.own), structure, parallel=None, ahead=NUM_PREFETCHED)
    return Epochs(load, even_layout(count, int(batch_size)), count, seed, shuffle)


def open_arrays(source: Structure) -> tuple[Fetch, Structure, int]:
    """Returns how arrays are read, the structure of a batch, and the number of examples.

    Arrays stay where they are: rows of a memory-mapped one are read when they are used.
    """
    source = lists_as_tuples(source)
    arrays = [
        part if isinstance(part, np.ndarray) else np.asarray(part)
        for part in tf.nest.flatten(source)
    ]
    lengths = {len(part) if part.ndim else 0 for part in arrays}
    if len(lengths) != 1 or 0 in lengths:
        raise ValueError(
            "Arrays need a row for each example, and at least one. Received arrays of the shapes "
            f"{', '.join(str(part.shape) for part in arrays) or 'no array'}."
        )
    specs = [batch_spec(part.shape[1:], part.dtype) for part in arrays]

    def fetch(rows: np.ndarray) -> list[np.ndarray]:
        return [np.ascontiguousarray(part[rows]) for part in arrays]

    return fetch, tf.nest.pack_sequence_as(source, specs), lengths.pop()


def lists_as_tuples(source: Structure) -> Structure:
    """Returns arrays with tuples in place of lists, which `tf.data` would stack."""
    if isinstance(source, dict):
        return {name: lists_as_tuples(part) for name, part in source.items()}
    if not isinstance(source, tuple | list):
        return source
    parts: list[Any] = [lists_as_tuples(part) for part in source]
    return type(source)(*parts) if hasattr(source, "_fields") else tuple(parts)


def open_examples(source: RandomAccess) -> tuple[Fetch, Structure, int]:
    """Returns how numbered examples are read, the structure of a batch, and their number."""
    if len(source) == 0:
        raise ValueError(f"The data is empty. Received {type(source).__name__} of length 0.")
    first = [as_array(part) for part in leaves_of(source[0])]
    specs = [batch_spec(part.shape, part.dtype) for part in first]

    def fetch(rows: np.ndarray) -> list[np.ndarray]:
        numbers = [int(row) for row in rows]
        examples = [list(map(as_array, leaves_of(one))) for one in read_examples(source, numbers)]
        for number, example in zip(numbers, examples, strict=True):
            check_like_first(number, example, first)
        return [np.stack(column) for column in zip(*examples, strict=True)]

    return fetch, structure_of(source[0], specs), len(source)


def read_examples(source: RandomAccess, numbers: list[int]) -> Sequence[Structure]:
    """Returns examples, several at once where the source can do that."""
    several = getattr(source, "__getitems__", None)
    return several(numbers) if several is not None else [source[number] for number in numbers]


def leaves_of(example: Structure) -> list[object]:
    """Returns the values of an example; a list is one value."""
    if isinstance(example, dict):
        return [leaf for key in sorted(example) for leaf in leaves_of(example[key])]
    if isinstance(example, tuple):
        return [leaf for part in example for leaf in leaves_of(part)]
    return [example]


def structure_of(example: Structure, specs: list[tf.TensorSpec]) -> Structure:
    """Returns the structure of an example with the specs in the places of its values."""

    def walk(part: Structure) -> Structure:
        if isinstance(part, dict):
            return {key: walk(part[key]) for key in sorted(part)}
        if isinstance(part, tuple):
            return tuple(walk(one) for one in part)
        return next(remaining)

    remaining = iter(specs)
    return walk(example)


def as_array(value: object) -> np.ndarray:
    """Returns a value as an array; Python's own floating-point numbers become float32."""
    array = np.asarray(value)
    is_python = not isinstance(value, np.ndarray | np.generic | tf.Tensor)
    return array.astype(np.float32) if is_python and array.dtype == np.float64 else array


def batch_spec(shape: tuple[int, ...], dtype: np.dtype) -> tf.TensorSpec:
    """Returns the spec of a tensor with any number of rows of this shape."""
    if dtype.kind in "US":
        return tf.TensorSpec([None, *shape], tf.string)
    if dtype.kind == "O":
        raise ValueError(
            "The values of an example must be numbers, texts or arrays. Received other objects, "
            "such as None or lists of different lengths; leave them out or convert them."
        )
    return tf.TensorSpec([None, *shape], tf.as_dtype(dtype))


def check_like_first(number: int, example: list[np.ndarray], first: list[np.ndarray]) -> None:
    """Raises ValueError unless an example has the shapes and types of the first one."""

    def forms(arrays: list[np.ndarray]) -> list[tuple[tuple[int, ...], str]]:
        return [(part.shape, "text" if part.dtype.kind in "US" else str(part.dtype))
                for part in arrays]  # fmt: skip

    if forms(example) != forms(first):
        raise ValueError(
            f"Example {number} has the shapes and types {forms(example)}, the first one "
            f"{forms(first)}. The examples of a batch must agree: pad or resize them before."
        )

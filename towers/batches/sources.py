"""Sources: batches of an epoch out of the data that a user brings."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Protocol, TypeAlias, runtime_checkable

import keras
import numpy as np
import tensorflow as tf

from towers.batches.shards import Batches, check_batches, check_dataset
from towers.ground.epochs import Epochs, assembled, even_layout
from towers.ground.private_apis import reshuffle_sizes

NUM_PREFETCHED = 2  # Batches; they are fetched in one thread, since few sources are made for more.
# An array, or a tuple or a dictionary of structures; TensorFlow's own are recursive too.
Structure: TypeAlias = object
Fetch: TypeAlias = Callable[[np.ndarray], list[np.ndarray]]


def batches_from(
    dataset: tf.data.Dataset | Callable[[int], tf.data.Dataset] | RandomAccess,
    batch_size: int | None = None,
    *,
    shuffle: bool = False,
    seed: int = 0,
) -> Batches:
    """Returns `batches(epoch, first_step)` over your own data.

    Data with random access is resumed at once: only what is left of an epoch is read. A data set of
    `tf.data` skips the consumed batches, which reads them again, and is exact if it yields the same
    batches in every iteration.

    Args:
        dataset: with a `batch_size`, examples with random access: NumPy arrays (one, or a tuple or
            a dictionary with a row for each example), or anything with `__len__` and
            `__getitem__`, such as a list, a `datasets.Dataset` of Hugging Face or a data source of
            TensorFlow Datasets. Without one, a `tf.data.Dataset` of global batches for every
            epoch; or, for an order that differs from epoch to epoch, a function that returns those
            of an epoch (from 0), the same ones whenever it is called.
        batch_size: examples in a global batch; the last one of an epoch may be smaller.
        shuffle: whether each epoch has an order of its own, a function of the seed and its number.
        seed: the seed of the order.

    Raises:
        ValueError: it is none of them, or the options do not fit it.

    >>> numbers = tf.data.Dataset.range(4)
    >>> batches = batches_from(lambda epoch: numbers.shuffle(4, seed=epoch).batch(2))
    >>> [batch.numpy().tolist() for batch in batches(7, 1)] == [
    ...     batch.numpy().tolist() for batch in batches(7, 0)
    ... ][1:]
    True
    >>> batches = batches_from({"x": tf.range(5)}, 2)
    >>> [batch["x"].numpy().tolist() for batch in batches(0, 1)]
    [[2, 3], [4]]
    """
    if isinstance(dataset, tf.data.Dataset):
        warn_of_shuffles(dataset)
    elif isinstance(dataset, RandomAccess):
        if batch_size is None:
            raise ValueError(
                f"batches_from needs a batch_size for examples. Received {type(dataset).__name__} "
                "without one: batches_from(data, 32)."
            )
        return random_access_batches(dataset, batch_size, shuffle=shuffle, seed=seed)
    elif not callable(dataset):
        raise ValueError(
            "batches_from takes a tf.data.Dataset of global batches, a function that returns that "
            "of an epoch, or examples with __len__ and __getitem__ and a batch_size. Received "
            f"{type(dataset).__name__}; what can only be iterated has to become one of these."
        )
    if batch_size is not None or shuffle:
        raise ValueError(
            "batch_size and shuffle are for examples with random access. Received them for a "
            "tf.data.Dataset; call its `shuffle` and `batch` instead."
        )
    return batches_of_epochs(dataset)


def batches_of_epochs(dataset: tf.data.Dataset | Callable[[int], tf.data.Dataset]) -> Batches:
    """Returns the batches of a data set for every epoch, or of a function of the epoch."""
    first: list[tf.TypeSpec] = []

    def batches(epoch: int, first_step: int = 0) -> tf.data.Dataset:
        of_epoch = dataset if isinstance(dataset, tf.data.Dataset) else dataset(epoch)
        check_dataset(of_epoch)
        first[:] = first or [of_epoch.element_spec]
        if kinds_in(of_epoch.element_spec) != kinds_in(first[0]):
            raise ValueError(
                "The batches of all epochs must have one structure and the same types. Received "
                f"{of_epoch.element_spec} in epoch {epoch}, and {first[0]} before."
            )
        return of_epoch.skip(first_step) if first_step else of_epoch

    return batches


def kinds_in(spec: Structure) -> Structure:
    """Returns the structure of a batch with the kind and the type of each of its parts."""
    return tf.nest.map_structure(
        lambda part: (type(part), getattr(part, "dtype", None)), spec, expand_composites=False
    )


def as_batches(batches: Batches | tf.data.Dataset) -> Batches:
    """Returns the function of a data set, or the function itself; raises ValueError for neither."""
    check_batches(batches)
    return batches_from(batches) if isinstance(batches, tf.data.Dataset) else batches


def warn_of_shuffles(dataset: tf.data.Dataset) -> None:
    """Warns if a shuffle draws another order whenever the data set is iterated."""
    orders = reshuffle_sizes(dataset)
    if orders:
        sizes = ", ".join(f"shuffle({size})" for size in orders)
        warnings.warn(
            f"The data set has {sizes}, which draws another order at every iteration: an epoch "
            "that is resumed would see some examples twice and others never, and a resumed run "
            "would not be the uninterrupted one. Give batches_from a function of the epoch instead:"
            " batches_from(lambda epoch: examples.shuffle(size, seed=epoch).batch(n)).",
            stacklevel=3,
        )


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
    """Returns the batches of a source with random access; arguments as in `batches_from`.

    A source that has `__getitems__` is asked for the examples of a batch at once.

    Raises:
        ValueError: the source is empty, its arrays differ in length, or the batch size is below 1.
    """
    if not isinstance(batch_size, int | np.integer):
        raise ValueError(f"batch_size must be a whole number. Received {batch_size!r}.")
    if isinstance(source, str | bytes):
        raise ValueError(
            f"The data must be examples. Received the text {source[:60]!r}; read the file first."
        )
    is_fixed = isinstance(source, np.ndarray | tf.Tensor | tuple | dict)
    fetch, structure, count = (open_arrays if is_fixed else open_examples)(source)
    load = assembled(lambda batch: fetch(batch.own), structure, parallel=None, ahead=NUM_PREFETCHED)
    layout = even_layout(count, int(batch_size))
    return Epochs(load, layout, count, seed, shuffle, is_fixed=is_fixed)


def open_arrays(source: Structure) -> tuple[Fetch, Structure, int]:
    """Returns how arrays are read, the structure of a batch, and the number of examples.

    Arrays stay where they are: rows of a memory-mapped one are read when they are used.
    """
    source = keras.tree.lists_to_tuples(source)  # `tf.data` would stack a list.
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


def open_examples(source: RandomAccess) -> tuple[Fetch, Structure, int]:
    """Returns how numbered examples are read, the structure of a batch, and their number."""
    if len(source) == 0:
        raise ValueError(f"The data is empty. Received {type(source).__name__} of length 0.")
    example = as_arrays(source[0])
    first = tf.nest.flatten(example)
    # Several at once where the source can do that.
    read = getattr(source, "__getitems__", lambda numbers: [source[one] for one in numbers])

    def fetch(rows: np.ndarray) -> list[np.ndarray]:
        numbers = [int(row) for row in rows]
        examples = [tf.nest.flatten(as_arrays(one)) for one in read(numbers)]
        for number, one in zip(numbers, examples, strict=True):
            check_like_first(number, one, first)
        return [np.stack(column) for column in zip(*examples, strict=True)]

    specs = tf.nest.map_structure(lambda part: batch_spec(part.shape, part.dtype), example)
    return fetch, specs, len(source)


def as_arrays(example: Structure) -> Structure:
    """Returns an example with its values as arrays; a list is one value.

    Python's own floating-point numbers become float32.
    """
    if isinstance(example, dict):
        return {key: as_arrays(example[key]) for key in sorted(example)}
    if isinstance(example, tuple):
        return tuple(map(as_arrays, example))
    array = np.asarray(example)
    is_python = not isinstance(example, np.ndarray | np.generic | tf.Tensor)
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

"""Sources: batches of an epoch out of the data that a user brings."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable

import tensorflow as tf

from towers.batches.random_access import RandomAccess, random_access_batches
from towers.batches.shards import Batches, check_batches
from towers.ground.private_apis import reshuffle_sizes


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
    return Skipping(dataset)


@dataclasses.dataclass(frozen=True)
class Skipping:
    """The batches of a `tf.data.Dataset`, or of a function of the epoch, resumed by skipping.

    Attributes:
        dataset: as `batches_from` takes it.
    """

    dataset: tf.data.Dataset | Callable[[int], tf.data.Dataset]

    def __call__(self, epoch: int, first_step: int = 0) -> tf.data.Dataset:
        """Returns the batches of an epoch from one of its steps on."""
        whole = self.dataset
        of_epoch = whole if isinstance(whole, tf.data.Dataset) else whole(epoch)
        return of_epoch.skip(first_step) if first_step else of_epoch


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

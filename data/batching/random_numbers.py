"""The random numbers of the data: functions of seed, epoch and example, without any state."""

from __future__ import annotations

import numpy as np

ORDER_STREAM, AUGMENTATION_STREAM, BATCH_ORDER_STREAM, REPEATS_STREAM = range(4)


def permutation(
    num_examples: int, *, seed: int, epoch: int, stream: int = ORDER_STREAM
) -> np.ndarray:
    """Returns a random order of the examples in an epoch: int32 [num_examples].

    Args:
        num_examples: number of examples.
        seed, epoch: the order is a function of both.
        stream: another stream gives an independent order, such as for the batches.
    """
    order = _generator(seed, epoch, stream).permutation(num_examples)
    return order.astype(np.int32)


def uniform_table(num_examples: int, num_columns: int, *, seed: int, epoch: int) -> np.ndarray:
    """Returns uniform random numbers, one row for each example of an epoch.

    A row depends on its index, not on the number of rows or on the batch that uses it.

    Returns:
        float32 [num_examples, num_columns] in [0, 1).
    """
    generator = _generator(seed, epoch, AUGMENTATION_STREAM)
    return generator.random((num_examples, num_columns), dtype=np.float32)


def _generator(seed: int, epoch: int, stream: int) -> np.random.Generator:
    """Returns a counter-based generator (Salmon et al. 2011), whose key needs no hashing."""
    key = np.array([seed, epoch], dtype=np.uint64)
    counter = np.array([0, 0, 0, stream], dtype=np.uint64)
    return np.random.Generator(np.random.Philox(key=key, counter=counter))

"""The one seeded generator: random numbers that are functions of seed and epoch, without state."""

from __future__ import annotations

import numpy as np

ORDER_STREAM, AUGMENTATION_STREAM, BATCH_ORDER_STREAM, REPEATS_STREAM = range(4)


def permutation(
    num_examples: int, *, seed: int, epoch: int, stream: int = ORDER_STREAM
) -> np.ndarray:
    """Returns a random order of the examples in an epoch: [num_examples] of `index_type`.

    Args:
        seed, epoch: the order is a function of both.
        stream: another stream gives an independent order, such as for the batches.
    """
    order = generator(seed, epoch, stream).permutation(num_examples)
    return order.astype(index_type(num_examples))


def index_type(num_examples: int) -> type[np.signedinteger]:
    """Returns int32, or int64 where a number of an example does not fit into it."""
    return np.int32 if num_examples <= 1 << 31 else np.int64


def uniform_table(num_examples: int, num_columns: int, *, seed: int, epoch: int) -> np.ndarray:
    """Returns uniform random numbers, one row for each example of an epoch.

    A row depends on its index, not on the number of rows or on the batch that uses it.

    Returns:
        float32 [num_examples, num_columns] in [0, 1).
    """
    numbers = generator(seed, epoch, AUGMENTATION_STREAM)
    return numbers.random((num_examples, num_columns), dtype=np.float32)


def generator(seed: int, epoch: int = 0, stream: int = ORDER_STREAM) -> np.random.Generator:
    """Returns a counter-based generator (Salmon et al. 2011), whose key needs no hashing."""
    key = np.array([seed, epoch], dtype=np.uint64)
    counter = np.array([0, 0, 0, stream], dtype=np.uint64)
    return np.random.Generator(np.random.Philox(key=key, counter=counter))

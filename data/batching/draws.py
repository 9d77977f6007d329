"""The random numbers of the data: each is a function of seed, epoch and example."""

from __future__ import annotations

import numpy as np

ORDER_STREAM, AUGMENTATION_STREAM, BATCH_ORDER_STREAM = 0, 1, 2


def permutation(
    num_examples: int, *, seed: int, epoch: int, stream: int = ORDER_STREAM
) -> np.ndarray:
    """Returns the order of the examples in an epoch: int32 [num_examples].

    Args:
        num_examples: how many there are.
        seed, epoch: what the order depends on.
        stream: another one gives another order, for what is ordered besides the examples.
    """
    order = _generator(seed, epoch, stream).permutation(num_examples)
    return order.astype(np.int32)


def uniform_table(num_examples: int, num_draws: int, *, seed: int, epoch: int) -> np.ndarray:
    """Returns float32 [num_examples, num_draws] in [0, 1), one row for each example of an epoch.

    A row depends on its index, not on how many rows there are or in which batch it is used.
    """
    generator = _generator(seed, epoch, AUGMENTATION_STREAM)
    return generator.random((num_examples, num_draws), dtype=np.float32)


def _generator(seed: int, epoch: int, stream: int) -> np.random.Generator:
    """Returns a counter-based generator (Salmon et al. 2011), whose key needs no hashing."""
    key = np.array([seed, epoch], dtype=np.uint64)
    counter = np.array([0, 0, 0, stream], dtype=np.uint64)
    return np.random.Generator(np.random.Philox(key=key, counter=counter))

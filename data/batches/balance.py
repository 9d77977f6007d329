"""The order of the rows of a batch, so that its shards have about as many tokens each."""

from __future__ import annotations

import functools

import numpy as np


def balanced_rows(lengths: np.ndarray) -> np.ndarray:
    """Returns an order of the rows of a batch in which every contiguous block is about as long.

    Args:
        lengths: int64 [n], the length of each row.
    """
    return np.argsort(lengths, kind="stable")[balanced_order(len(lengths))]


@functools.lru_cache(maxsize=1024)
def balanced_order(num_rows: int) -> np.ndarray:
    """Returns an order of sorted rows in which every contiguous block has long and short ones.

    Places follow the sequence of van der Corput (1935), whose sections are evenly distributed.
    Each binary digit is replaced by the parity of the digits up to it, because the plain sequence
    tends to rise; with parities the sums of the blocks differ by about one long row at most.
    """
    num_bits = max(1, (num_rows - 1).bit_length())
    numbers = np.arange(num_rows)
    mirrored, parity = np.zeros((2, num_rows), np.int64)
    for bit in range(num_bits):
        parity ^= (numbers >> bit) & 1
        mirrored |= parity << (num_bits - 1 - bit)
    return np.argsort(np.argsort(mirrored))

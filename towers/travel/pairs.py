"""Pairs: how rows are cut and sums are made, so that the same parts give the same bits.

Both follow one binary tree: an even number of parts is cut into two halves first, and neighbours
are added first. So four towers, two towers with two micro-batches each and one tower with four
have the same parts and the same sums.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import tensorflow as tf

Size = TypeVar("Size", int, tf.Tensor)
T = TypeVar("T")


def part_sizes(size: Size, num_parts: int) -> list[Size]:
    """Returns the sizes of `num_parts` parts, which differ by at most one.

    An even number of parts is cut into two halves first, and so on, so that eight parts are the
    same as four parts of two parts each.

    >>> part_sizes(10, 4), part_sizes(5, 3)
    ([3, 2, 3, 2], [2, 2, 1])
    """
    if num_parts % 2 == 1:
        return [(size + num_parts - 1 - index) // num_parts for index in range(num_parts)]
    return [
        part for both in part_sizes(size, num_parts // 2) for part in (both - both // 2, both // 2)
    ]


def add_in_pairs(add: Callable[[T, T], T], parts: Sequence[T]) -> T:
    """Returns the sum of one or more parts; adds neighbours first, then neighbouring sums.

    The order depends only on the number of parts: four towers, two towers with two micro-batches
    each and one tower with four get bit-identical sums.

    >>> add_in_pairs("({} + {})".format, "abcde")
    '(((a + b) + (c + d)) + e)'
    """
    if len(parts) == 1:
        return parts[0]
    half = first_half(len(parts))
    return add(add_in_pairs(add, parts[:half]), add_in_pairs(add, parts[half:]))


def first_half(count: int) -> int:
    """Returns how many of two or more parts belong to the left half, a power of two.

    >>> [first_half(count) for count in (2, 3, 4, 5, 8, 9)]
    [1, 2, 2, 4, 4, 8]
    """
    return 1 << (count - 1).bit_length() - 1

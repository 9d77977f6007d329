"""Synchronised layers: refused where a tower sees only a part of the batch."""

from __future__ import annotations

import contextlib
from typing import Any, NoReturn

import tensorflow as tf


def no_sums_over_replicas(num_parts: int) -> contextlib.AbstractContextManager[Any]:
    """Returns the scope in which a layer that sums over replicas is an error.

    Args:
        num_parts: the number of parts into which a batch is cut. With one part, a sum over the
            replicas is that of the tower itself.
    """
    return PartContext(num_parts) if num_parts > 1 else contextlib.nullcontext()


class PartContext(tf.distribute.ReplicaContext):
    """The replica in which layers find themselves within a tower: it sums over no others.

    Args:
        num_parts: the number of parts into which a batch is cut.
    """

    def __init__(self, num_parts: int):
        super().__init__(tf.distribute.get_strategy(), 0)
        self._num_parts = num_parts

    def all_reduce(self, *_: Any, **options: Any) -> NoReturn:
        """Raises RuntimeError; TensorFlow would return the tower's own part as the sum."""
        raise RuntimeError(
            "A layer sums over all replicas, as BatchNormalization(synchronized=True) does, but "
            "towers do not wait for each other while they compute. Expected a batch in one part; "
            f"received one in {self._num_parts} parts (towers, micro-batches and processes). Leave "
            "`synchronized` out, so that each part is normalised by its own statistics, or train "
            "on one tower with accumulate=1."
        )

    all_gather = all_reduce

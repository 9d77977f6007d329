"""The batches of an epoch: their order, the batch of each step, and the data set from a step on."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from towers.data.batching.buckets import Layout
from towers.data.batching.random_numbers import BATCH_ORDER_STREAM, permutation

if TYPE_CHECKING:
    import tensorflow as tf

NUM_PARALLEL_CALLS = 2  # Batches assembled at the same time.
NUM_PREFETCHED = 4  # Batches kept ready for the training.

ArrayPair = tuple[np.ndarray, np.ndarray]
ChooseRows = Callable[[int], slice]


def all_rows(num_rows: int) -> slice:
    """Returns all rows of a batch."""
    return slice(0, num_rows)


def bucketed_epoch(
    layout: Layout,
    assemble: Callable[[np.ndarray, np.ndarray, slice], ArrayPair],
    *,
    epoch: int,
    first_step: int,
    seed: int | None,
    choose: ChooseRows = all_rows,
) -> tf.data.Dataset:
    """Returns the batches of an epoch, from one of its steps on, whose examples lie in buckets.

    The layout and the order are functions of (seed, epoch), so that an epoch can continue at any
    step without the batches before it.

    Args:
        layout: which examples share a batch.
        assemble: `assemble(examples, shape, rows)` returns these rows of a batch, two int32
            [rows, length], of int64 [n] examples and their int64 [3] row of `layout.shapes`.
        epoch: number of the epoch, from 0.
        first_step: number of its batches that were consumed already.
        seed: of the order; None for the order of the layout in every epoch.
        choose: `choose(num_rows)` returns the slice of a batch's rows that is assembled.

    Raises:
        ValueError: there is no such step in an epoch.
    """
    check_position(epoch, first_step, layout.num_batches)
    batches = batch_order(layout, epoch, seed)
    # It takes a second for millions of examples; who wants the spec alone does not wait for it.
    order = once(lambda: example_order(layout, epoch, seed))

    def batch_of_step(step: np.ndarray) -> ArrayPair:
        examples, batch = order(), batches[step]
        chosen = examples[layout.bounds[batch] : layout.bounds[batch + 1]]
        shape = layout.shapes[batch]
        return assemble(chosen, shape, choose(int(shape[0])))

    return dataset_of_steps(batch_of_step, first_step, layout.num_batches)


def once(make: Callable[[], np.ndarray]) -> Callable[[], np.ndarray]:
    """Returns a function that makes a value at its first call, for all threads that call it."""
    lock, made = threading.Lock(), functools.cache(make)

    def value() -> np.ndarray:
        with lock:
            return made()

    return value


def row_counts(layout: Layout, epoch: int, seed: int | None) -> np.ndarray:
    """Returns the number of rows of each batch of such an epoch, int64 [steps]."""
    return layout.shapes[batch_order(layout, epoch, seed), 0]


def bounds_of(num_examples: int, batch_size: int) -> np.ndarray:
    """Returns where each batch begins in the order of an epoch, and the end: int64 [steps + 1]."""
    return np.append(np.arange(0, num_examples, batch_size), num_examples)


def chosen_rows(bounds: np.ndarray, choose: ChooseRows) -> np.ndarray:
    """Returns where the chosen rows of each batch begin and end in an epoch: int64 [steps, 2]."""
    sizes = np.diff(bounds).tolist()
    slices = {size: choose(size) for size in set(sizes)}
    return bounds[:-1, None] + [(slices[size].start, slices[size].stop) for size in sizes]


def check_position(epoch: int, first_step: int, steps_per_epoch: int) -> None:
    """Raises ValueError unless this is a position in an epoch, its end included."""
    if epoch < 0 or not 0 <= first_step <= steps_per_epoch:
        raise ValueError(
            f"An epoch has {steps_per_epoch} batches, and epochs count from 0. Received "
            f"epoch={epoch}, first_step={first_step}."
        )


def example_order(layout: Layout, epoch: int, seed: int | None) -> np.ndarray:
    """Returns the examples in their order within an epoch, bucket by bucket."""
    if seed is None:
        return layout.examples
    shuffled = permutation(len(layout.examples), seed=seed, epoch=epoch)
    within_groups = shuffled[np.argsort(layout.groups[shuffled], kind="stable")]
    return layout.examples[within_groups]


def batch_order(layout: Layout, epoch: int, seed: int | None) -> np.ndarray:
    """Returns the batches of the layout in their order within an epoch."""
    if seed is None:
        return np.arange(layout.num_batches)
    return permutation(layout.num_batches, seed=seed, epoch=epoch, stream=BATCH_ORDER_STREAM)


def dataset_of_steps(
    batch_of_step: Callable[[np.ndarray], ArrayPair], first_step: int, steps_per_epoch: int
) -> tf.data.Dataset:
    """Returns the batches of an epoch from one of its steps on, in order, assembled ahead.

    Args:
        batch_of_step: from a step of the epoch to two int32 [batch, length].
        first_step: number of batches that were consumed already.
        steps_per_epoch: number of batches.
    """
    import tensorflow as tf  # Not at the top: a corpus is prepared without TensorFlow.

    @tf.autograph.experimental.do_not_convert
    def load(step: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        first, second = tf.numpy_function(batch_of_step, [step], [tf.int32, tf.int32])
        return tf.ensure_shape(first, [None, None]), tf.ensure_shape(second, [None, None])

    steps = tf.data.Dataset.range(first_step, steps_per_epoch)
    batches = steps.map(load, num_parallel_calls=NUM_PARALLEL_CALLS, deterministic=True)
    return batches.prefetch(NUM_PREFETCHED)

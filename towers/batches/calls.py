"""Calls: the shards of several batches in one tensor, which the graph of a step takes apart."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from towers.batches.shards import Shard

NEVER = 2**62  # Batches; no training has so many.


def in_calls(
    dataset: tf.data.Dataset, size: int, begun: int = 0, steps: int | None = None
) -> tf.data.Dataset:
    """Returns a data set of calls: vectors with one element, of type variant, for each batch.

    The shapes of batches may differ. The last call is shorter if the batches end.

    Args:
        dataset: tuples of shards.
        size: the number of batches in a call.
        begun: how many batches of the first call were consumed before.
        steps: a call ends after so many batches, too; None: wherever it would.
    """
    queued = dataset.map(as_one)
    last = NEVER if steps is None else begun + steps
    if begun == 0 and (steps is None or last % size == 0):
        return queued.batch(size)

    plain = tf.autograph.experimental.do_not_convert  # Conversion would dominate an epoch's start.

    def length(call: tf.Tensor) -> tf.Tensor:
        stop = tf.minimum((call + 1) * size, last)
        return tf.maximum(stop - tf.maximum(call * size, begun), 1)

    return (
        queued.enumerate(begun)
        .group_by_window(
            key_func=plain(lambda number, one: number // size),
            reduce_func=plain(lambda call, group: group.batch(size)),
            window_size_func=plain(length),
        )
        .map(plain(lambda numbers, calls: calls))
    )


@tf.autograph.experimental.do_not_convert
def as_one(*shards: Shard) -> tf.Tensor:
    """Returns the shards of a batch as one tensor, variant []."""
    return variant_of(tf.experimental.Optional.from_value(shards))


def shards_of(one: tf.Tensor, specs: Any) -> tuple[Shard, ...]:
    """Returns the shards that `as_one` made one tensor of, variant []."""
    optional = tf.nest.pack_sequence_as(tf.OptionalSpec(specs), [one], expand_composites=True)
    shards: tuple[Shard, ...] = optional.get_value()
    return shards


def taken_from(source: Any, index: tf.Tensor, count: tf.Tensor) -> tf.Tensor:
    """Returns a batch as `as_one` does, variant []; after the last one, one that is not used.

    Args:
        source: a call, or an iterator over shards, of which the next ones are taken.
        index: that of the batch, int32 scalar.
        count: the number of batches, int32 scalar.
    """
    if tf.is_tensor(source):
        return source[tf.minimum(index, count - 1)]
    return tf.cond(
        index < count, lambda: variant_of(source.get_next_as_optional()), tf.raw_ops.OptionalNone
    )


def variant_of(optional: tf.experimental.Optional) -> tf.Tensor:
    """Returns the tensor that an `Optional` consists of, variant []."""
    (variant,) = tf.nest.flatten(optional, expand_composites=True)
    return variant

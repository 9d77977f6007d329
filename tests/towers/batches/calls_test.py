"""Batches in calls: none is lost, none comes twice, and calls end where they are told to."""

import pytest
import tensorflow as tf

from towers.batches.calls import in_calls, shards_of
from towers.batches.shards import split


@pytest.mark.parametrize(
    "size, begun, steps, lengths",
    [
        (3, 0, None, [3, 3, 2]),
        (3, 0, 6, [3, 3, 2]),
        (3, 1, None, [2, 3, 3]),
        (3, 2, 5, [1, 3, 1, 1, 1, 1]),
        (20, 0, None, [8]),
        (20, 4, 1, [1] * 8),
    ],
)
def test_calls_hold_every_batch_once_in_order(size, begun, steps, lengths):
    rows = tf.data.Dataset.range(1, 9).map(lambda number: tf.fill([number % 3 + 1, 2], number))
    shards = split(rows.apply(any_rows), 2)
    calls = list(in_calls(shards, size, begun, steps))
    assert [len(call) for call in calls] == lengths
    found = [shards_of(one, shards.element_spec) for call in calls for one in call]
    for one, expected in zip(found, shards, strict=True):
        tf.nest.map_structure(tf.debugging.assert_equal, one, expected)


def any_rows(dataset):
    return dataset.map(lambda rows: tf.ensure_shape(rows, [None, 2]))

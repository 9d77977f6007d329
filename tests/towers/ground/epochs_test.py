"""An epoch holds every row once, goes on at any of its steps, and nowhere else."""

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from towers.ground.epochs import Epochs, Layout, assembled, even_layout

NUMBERS = (tf.TensorSpec([None], tf.int64),)


def epochs_of(layout, **options):
    load = assembled(lambda batch: [batch.own], NUMBERS)
    return Epochs(load, layout, len(layout.rows), **options)


def collect(dataset):
    return [rows.tolist() for (rows,) in dataset.as_numpy_iterator()]


def joined(batches):
    return [row for rows in batches for row in rows]


def layout_in_groups():
    """Seven rows in three batches; the first three rows and the last two may change places."""
    bounds, groups = np.array([0, 2, 5, 7]), np.array([0, 0, 0, 1, 2, 3, 3], np.uint16)
    rows = np.array([6, 5, 4, 3, 2, 1, 0])
    return Layout(rows, groups, bounds, np.diff(bounds)[:, None], batches_move=True)


@settings(max_examples=30, deadline=None)
@given(data=st.data(), num_rows=st.integers(0, 40), batch_size=st.integers(1, 9))
def test_every_row_comes_once_in_an_order_of_seed_and_epoch(data, num_rows, batch_size):
    batches = epochs_of(even_layout(num_rows, batch_size), seed=5)
    whole = collect(batches(3))
    first_step = data.draw(st.integers(0, len(whole)))
    assert sorted(joined(whole)) == list(range(num_rows))
    assert collect(batches(3, first_step)) == whole[first_step:]
    assert len(whole) == batches.steps_per_epoch == -(-num_rows // batch_size)
    assert all(len(rows) == batch_size for rows in whole[:-1])


def test_rows_change_places_within_their_group_and_batches_as_well():
    batches = epochs_of(layout_in_groups())
    seen = [collect(batches(epoch)) for epoch in range(40)]
    assert len({str(epoch) for epoch in seen}) > 20
    for epoch in seen:
        in_place = joined(sorted(epoch, key=lambda rows: -min(rows)))
        assert sorted(in_place[:3]) == [4, 5, 6] and sorted(in_place[5:]) == [0, 1]
        assert in_place[3:5] == [3, 2]
    assert len({str(list(map(len, epoch))) for epoch in seen}) > 1
    in_order = epochs_of(layout_in_groups(), shuffle=False)
    assert collect(in_order(7)) == [[6, 5], [4, 3, 2], [1, 0]]


def test_chosen_rows_are_those_of_the_whole_batch_with_its_number_of_rows():
    batches = epochs_of(even_layout(11, 4), seed=1)
    whole = collect(batches(2))
    pairs = batches.take_rows(lambda num_rows: slice(num_rows // 2, num_rows), 2, 1)
    taken = [(rows.tolist(), int(count)) for (rows,), count in pairs.as_numpy_iterator()]
    assert taken == [(rows[len(rows) // 2 :], len(rows)) for rows in whole[1:]]


@pytest.mark.parametrize("first_step", [0, 2, 3])
def test_the_number_of_batches_that_are_left_is_known(first_step):
    batches = epochs_of(even_layout(5, 2))
    assert batches(0, first_step).cardinality() == 3 - first_step


@pytest.mark.parametrize(("epoch", "first_step"), [(-1, 0), (0, -1), (0, 4)])
def test_a_place_outside_of_an_epoch_is_refused(epoch, first_step):
    with pytest.raises(ValueError, match=f"3 batches.*epoch={epoch}, first_step={first_step}"):
        epochs_of(even_layout(5, 2))(epoch, first_step)


def test_wrong_arguments_are_refused():
    with pytest.raises(ValueError, match=r"batch_size must be .* at least 1. Received 0"):
        even_layout(5, 0)
    with pytest.raises(ValueError, match=r"seed must be a whole number of at least 0. Received -1"):
        epochs_of(even_layout(5, 2), seed=-1)

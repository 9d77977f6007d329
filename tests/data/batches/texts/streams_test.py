"""Contiguous streams: a row goes on where it ended, and nothing is counted twice."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from towers.data.batches.texts import stream_batches
from towers.ground.special_ids import WORD_END as END


def collect(dataset):
    return [tuple(part.numpy() for part in batch) for batch in dataset]


def tokens_of(number):
    """Tokens that are all different."""
    return np.arange(number, dtype=np.int32) + 10


def joined(batches, part):
    """Returns each stream, from the rows of the batches side by side."""
    return np.concatenate([batch[part] for batch in batches], axis=1)


@settings(max_examples=50, deadline=None)
@given(number=st.integers(1, 80), rows=st.integers(1, 6), steps=st.integers(1, 9))
def test_in_evaluation_every_token_is_a_target_exactly_once(number, rows, steps):
    tokens = tokens_of(number)
    batches = stream_batches(tokens, rows, steps, drop_tail=False)
    collected = collect(batches(0))
    assert len(collected) == batches.steps_per_epoch
    assert {batch[0].shape for batch in collected} == {(rows, steps)}
    targets = joined(collected, 1)
    np.testing.assert_array_equal(targets[targets != 0], tokens)  # In the order of the text.
    assert batches.num_examples == number
    inputs = joined(collected, 0)
    np.testing.assert_array_equal(inputs[targets != 0], [END, *tokens[:-1]])
    assert (inputs[targets == 0] == 0).all()


@settings(max_examples=50, deadline=None)
@given(number=st.integers(1, 80), rows=st.integers(1, 6), steps=st.integers(1, 9))
def test_in_training_rows_are_contiguous_and_only_a_tail_is_dropped(number, rows, steps):
    tokens = tokens_of(number)
    if number < rows * steps:
        with pytest.raises(ValueError, match=f"The text has {number}"):
            stream_batches(tokens, rows, steps)
        return
    batches = stream_batches(tokens, rows, steps)
    targets = joined(collect(batches(0)), 1)
    length = number // rows
    for row, stream in enumerate(targets):
        np.testing.assert_array_equal(stream, tokens[row * length :][: length // steps * steps])
    assert batches.num_examples == targets.size


def test_a_row_begins_with_the_token_before_it():
    first, *_ = collect(stream_batches(tokens_of(12), 3, 2)(0))
    np.testing.assert_array_equal(first[0], [[END, 10], [13, 14], [17, 18]])
    np.testing.assert_array_equal(first[1], [[10, 11], [14, 15], [18, 19]])


def test_streams_begin_in_the_first_batch_of_every_epoch_alone():
    batches = stream_batches(tokens_of(30), 2, 4)
    for epoch in (0, 5):
        starts = [batch[2].tolist() for batch in collect(batches(epoch))]
        assert starts == [[True, True], [False, False], [False, False]]
    assert [batch[2].any() for batch in collect(batches(1, 1))] == [False, False]


def test_an_epoch_goes_on_at_any_step():
    batches = stream_batches(tokens_of(50), 3, 4, drop_tail=False)
    whole = collect(batches(2))
    for first_step in range(len(whole) + 1):
        rest = collect(batches(2, first_step))
        assert len(rest) == len(whole) - first_step
        for one, other in zip(rest, whole[first_step:], strict=True):
            for part, other_part in zip(one, other, strict=True):
                np.testing.assert_array_equal(part, other_part)


def test_wrong_arguments_are_refused():
    with pytest.raises(
        ValueError, match=r"num_rows must be a whole number of at least 1. Received 0"
    ):
        stream_batches(tokens_of(9), 0, 2)
    with pytest.raises(
        ValueError, match=r"num_steps must be a whole number of at least 1. Received -1"
    ):
        stream_batches(tokens_of(9), 1, -1)
    with pytest.raises(ValueError, match="needs 1 tokens"):
        stream_batches(tokens_of(0), 1, 1, drop_tail=False)
    with pytest.raises(ValueError, match=r"4 batches.*epoch=-1"):
        stream_batches(tokens_of(9), 1, 2)(-1)
    with pytest.raises(ValueError, match="first_step=5"):
        stream_batches(tokens_of(9), 1, 2)(0, 5)

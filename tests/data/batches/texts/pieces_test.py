"""Pieces of a text: every token once, in an order of (seed, epoch), from any step on."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from towers.data.batches.texts import piece_batches

FIRST = 7


def collect(dataset):
    return [tuple(part.numpy() for part in batch) for batch in dataset]


@settings(max_examples=15, deadline=None)
@given(number=st.integers(1, 80), size=st.integers(1, 6), steps=st.integers(1, 9))
def test_every_token_is_a_target_exactly_once_behind_the_one_before(number, size, steps):
    tokens = np.arange(number) + 10
    batches = piece_batches(tokens, size, steps, first=FIRST, seed=3)
    collected = collect(batches(1))
    assert len(collected) == batches.steps_per_epoch
    inputs, targets = (
        np.concatenate([batch[part].ravel() for batch in collected]) for part in (0, 1)
    )
    counted = targets != 0
    np.testing.assert_array_equal(np.sort(targets[counted]), tokens)
    np.testing.assert_array_equal(
        inputs[counted], np.where(targets[counted] == 10, FIRST, targets[counted] - 1)
    )
    assert (inputs[~counted] == 0).all() and counted.sum() == batches.num_examples


def test_the_order_is_a_function_of_seed_and_epoch_and_goes_on_anywhere():
    tokens = np.arange(200) + 10

    def targets(seed, epoch, first_step=0):
        batches = piece_batches(tokens, 4, 5, first=FIRST, seed=seed)
        return [batch[1].tolist() for batch in collect(batches(epoch, first_step))]

    assert targets(0, 2) == targets(0, 2)
    assert len({str(targets(*key)) for key in ((0, 0), (0, 1), (1, 0))}) == 3
    assert targets(0, 1, 3) == targets(0, 1)[3:]
    in_order = piece_batches(tokens, 4, 5, first=FIRST, shuffle=False)
    assert collect(in_order(5))[0][1][0].tolist() == [10, 11, 12, 13, 14]


@pytest.mark.parametrize(
    "arguments, message",
    [
        ((np.arange(9), 0, 2), "batch_size must be a whole number of at least 1. Received 0"),
        ((np.arange(9), 2, 0), "num_steps must be a whole number of at least 1. Received 0"),
        ((np.arange(0), 2, 2), "at least one token"),
    ],
)
def test_wrong_arguments_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        piece_batches(*arguments, first=FIRST)

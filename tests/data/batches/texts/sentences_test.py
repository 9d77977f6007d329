"""Sentences in batches: each once, of like lengths, in an order of (seed, epoch)."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from towers.data.batches.buckets import balanced_order
from towers.data.batches.texts import sentence_batches
from towers.ground.special_ids import WORD_END as END

LENGTHS = st.lists(st.integers(0, 12), min_size=1, max_size=60)


def text_of(lengths):
    """Sentences of different words, each ended; a blank line has its end alone."""
    rows = [[100 * row + 10 + word for word in range(length)] for row, length in enumerate(lengths)]
    return np.array([token for row in rows for token in (*row, END)], np.int32)


def collect(dataset):
    return [tuple(part.numpy() for part in batch) for batch in dataset]


def sentences_of(batches):
    return [tuple(row[row != 0].tolist()) for _, targets in batches for row in targets]


def lines_of(tokens):
    ends = np.flatnonzero(tokens == END) + 1
    return [tuple(part.tolist()) for part in np.split(tokens, ends)[:-1]]


@settings(max_examples=40, deadline=None)
@given(lengths=LENGTHS, batch_size=st.integers(1, 9), data=st.data())
def test_every_sentence_comes_once_and_follows_its_beginning(lengths, batch_size, data):
    tokens = text_of(lengths)
    batches = sentence_batches(tokens, batch_size, seed=3)
    epoch = collect(batches(2))
    assert sorted(sentences_of(epoch)) == sorted(lines_of(tokens))
    assert (batches.steps_per_epoch, batches.num_examples) == (len(epoch), len(tokens))
    for inputs, targets in epoch:
        assert inputs.shape == targets.shape and len(inputs) <= batch_size
        assert (targets != 0).any(axis=0).all()  # No column is all padding.
        np.testing.assert_array_equal(inputs != 0, targets != 0)
        assert (inputs[:, 0] == END).all()
        within = targets[:, 1:] != 0
        np.testing.assert_array_equal(inputs[:, 1:][within], targets[:, :-1][within])
    first_step = data.draw(st.integers(0, len(epoch)))
    assert sentences_of(collect(batches(2, first_step))) == sentences_of(epoch[first_step:])


def test_order_is_a_function_of_seed_and_epoch():
    tokens = text_of(np.arange(60) % 11)

    def epoch(seed, number):
        return sentences_of(collect(sentence_batches(tokens, 4, seed=seed)(number)))

    assert epoch(1, 2) == epoch(1, 2)
    assert epoch(1, 2) != epoch(1, 3)
    assert epoch(1, 2) != epoch(2, 2)


def test_without_shuffling_it_goes_from_short_to_long():
    batches = sentence_batches(text_of([5, 1, 3, 2, 4, 0]), 2, shuffle=False)
    assert [targets.shape[1] for _, targets in collect(batches(0))] == [2, 4, 6]
    assert sentences_of(collect(batches(0))) == sentences_of(collect(batches(7)))


def test_little_of_a_batch_is_padding_and_shards_are_balanced():
    lengths = np.minimum(np.random.default_rng(0).gamma(2.0, 10.0, 2000).astype(int), 60)
    epoch = collect(sentence_batches(text_of(lengths), 20, seed=1)(0))
    padding = np.mean(np.concatenate([(targets == 0).ravel() for _, targets in epoch]))
    assert padding < 0.03
    assert len(balanced_order(20)) == 20
    halves = [np.count_nonzero(t[:10]) / np.count_nonzero(t) for _, t in epoch if len(t) == 20]
    assert max(np.abs(np.array(halves) - 0.5)) < 0.05


def test_wrong_arguments_are_refused():
    with pytest.raises(
        ValueError, match=r"batch_size must be a whole number of at least 1. Received 0"
    ):
        sentence_batches(text_of([1]), 0)
    with pytest.raises(ValueError, match=r"seed must be a whole number of at least 0. Received -1"):
        sentence_batches(text_of([1]), 1, seed=-1)
    for tokens in (text_of([]), np.array([5, 6], np.int32)):
        with pytest.raises(ValueError, match="the last of which ends with END"):
            sentence_batches(tokens, 1)
    with pytest.raises(ValueError, match=r"An epoch has 1 batches.*first_step=2"):
        sentence_batches(text_of([1]), 1)(0, 2)

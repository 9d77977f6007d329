"""Processes that do not have the same settings or variables are told apart, by name."""

import itertools
import json
import warnings

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests import helpers
from towers.batches.sources import batches_from
from towers.compiled.data import read_data
from towers.compiled.together import Together, check_same_data
from towers.processes import agreement
from towers.processes.agreement import (
    check_same_batches,
    check_settings,
    check_variables,
    difference,
    digest,
)
from towers.processes.processes import Processes


def other_adds(array):
    """What the other of two processes adds to a sum."""
    return lambda nest: [part + tf.cast(array, part.dtype) for part in nest]


def test_the_setting_and_the_worker_that_differ_are_named():
    other = helpers.OneOfTwo(shares=[b'{"seed": 5, "steps": 3}', b'{"seed": 0, "steps": 3}'])
    with pytest.raises(ValueError, match="differ: worker 1 has seed 5, worker 0 has 0"):
        check_settings(other, {"seed": 0, "steps": 3})
    check_settings(other, {"seed": 0, "steps": 3})


def test_variables_that_differ_are_named():
    weights = tf.Variable([1.0, 2.0], name="weights")
    chief = helpers.OneOfTwo(other_adds(np.zeros(2)), shares=[b"other", b"weights by 1.5e-02"])
    with pytest.raises(RuntimeError, match=r"worker 1 in weights by 1\.5e-02.* worker 0's v"):
        check_variables(chief, {"variables": [weights]})
    # The other one: the sum is the chief's values, since it adds zeros itself.
    other = helpers.OneOfTwo(other_adds([1.03, 2.0]), index=1, shares=[b"other", b""])
    with pytest.raises(RuntimeError, match=r"worker 1 in weights by 1\.5e-02"):
        check_variables(other, {"variables": [weights]})


def test_variables_of_the_same_bits_or_but_for_rounding_are_the_same():
    weights = tf.Variable([1.0, 2.0], name="weights")
    same = agreement.digest([weights.numpy()]).encode()
    check_variables(helpers.OneOfTwo(shares=[same]), {"variables": [weights]})
    rounded = helpers.OneOfTwo(other_adds([1.0, 2.0 + 1e-6]), index=1, shares=[b"other", b""])
    check_variables(rounded, {"variables": [weights]})


def test_one_process_agrees_with_itself():
    check_settings(Processes(), {"seed": 0})
    check_variables(Processes(), {})


def test_rounding_is_no_difference_and_nothing_finite_is_near_infinity():
    assert difference(np.float32([1, 2]), np.float32([1, 2])) == 0
    assert difference(np.float32([np.nan]), np.float32([np.nan])) == 0
    assert difference(np.float32([1 + 1e-7]), np.float32([1])) < agreement.TOLERANCE
    assert difference(np.float32([np.inf]), np.float32([1])) == np.inf
    assert difference(np.zeros([0]), np.zeros([0])) == 0


def same(data):
    return data


INPUTS, LABELS = np.arange(16.0).reshape(8, 2), np.zeros(8)  # Rare labels: all are 0.
DATASET = tf.data.Dataset.from_tensor_slices((INPUTS, LABELS)).shuffle(8).batch(4)


class Shuffled(keras.utils.PyDataset):
    """Batches in an order of their own."""

    def __len__(self):
        return 1

    def __getitem__(self, index):
        return INPUTS, LABELS


@pytest.mark.parametrize(
    "check",
    [
        lambda one: check_same_data(one, read_data(DATASET)),
        lambda one: check_same_data(one, read_data(Shuffled())),
        lambda one: check_same_batches(one, batches_from(lambda epoch: DATASET)),
    ],
)
def test_other_inputs_with_the_same_labels_are_warned_of_once_by_the_chief(check):
    for index, other in itertools.product((0, 1), (b"other", same)):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            check(helpers.OneOfTwo(index=index, shares=[same, other]))
        told = [str(one.message) for one in caught]
        assert len(told) == (index == 0 and other == b"other")
        assert all("same labels" in one and "with a seed, the same in all" in one for one in told)


def test_arrays_and_batches_that_follow_from_a_seed_are_not_warned_of():
    for check in (
        lambda one: check_same_data(one, read_data(INPUTS, LABELS)),
        lambda one: check_same_batches(one, batches_from((INPUTS, LABELS), 4)),
    ):
        check(helpers.OneOfTwo(shares=[same]))


def test_a_data_set_that_shuffles_itself_where_it_begins_is_compared_then():
    class Shuffling(Shuffled):
        def on_epoch_end(self):
            labels[0] = 1 - labels[0]

        def __getitem__(self, index):
            return INPUTS, labels

    labels = np.zeros(8)
    before = json.dumps({"batches": 1, "a checksum of the first labels": digest([labels])[:8]})
    together = Together(helpers.OneOfTwo(shares=[before.encode()]))
    shards = together.shards(read_data(Shuffling()), 1, None)
    with pytest.raises(ValueError, match="worker 1 has a checksum of the first labels"):
        shards.begin()

"""A `keras.utils.PyDataset`: what it hears, loads and leaves behind, as in Keras."""

import multiprocessing
import threading
import time

import keras
import numpy as np
import pytest

import towers
from tests.helpers import tower_devices

RANDOM = np.random.default_rng(7)
X, Y = RANDOM.normal(size=(24, 9, 3)), RANDOM.normal(size=(24, 2))


class Batches(keras.utils.PyDataset):
    """Batches of four rows; notes what it is asked.

    Args:
        counts: how many batches there are, for each time that an epoch has ended.
        lengths: how many time steps each batch has.
    """

    def __init__(self, counts=(6,), lengths=(9,) * 6, **options):
        super().__init__(**options)
        self.counts, self.lengths = list(counts), lengths
        self.heard = []

    @property
    def num_batches(self):
        return self.counts[0]

    def __getitem__(self, index):
        self.heard.append(index)
        rows = slice(4 * index, 4 * index + 4)
        return X[rows, : self.lengths[index]], Y[rows]

    def on_epoch_begin(self):
        self.heard.append("begin")

    def on_epoch_end(self):
        self.heard.append("end")
        del self.counts[: len(self.counts) > 1]


def network():
    keras.utils.set_random_seed(1)
    layers = [keras.Input((None, 3)), keras.layers.GlobalAveragePooling1D(), keras.layers.Dense(2)]
    model = keras.Sequential(layers)
    model.compile("sgd", "mse")
    return model


def in_both(call, make_data=Batches, **options):
    """Returns what a call returns and what its data heard, by Keras and by towers."""
    found = []
    for own in ({}, {"towers": tower_devices(2)}):
        data, model = make_data(), network()
        function = getattr(towers, call) if own else getattr(keras.Model, call)
        result = function(model, data, verbose=0, **options, **own)
        found.append((model, result, data.heard))
    return found


@pytest.mark.parametrize("workers", [1, 3])
def test_it_is_loaded_as_often_as_in_keras(workers):
    for call, options in (("fit", {"epochs": 3}), ("evaluate", {}), ("predict", {})):
        (_, _, expected), (_, _, heard) = in_both(call, lambda: Batches(workers=workers), **options)
        for name in ("begin", "end"):
            assert heard.count(name) >= expected.count(name), call
        loads = [[one for one in each if isinstance(one, int)] for each in (expected, heard)]
        assert len(loads[0]) == len(loads[1]), call


def test_it_hears_what_it_hears_in_keras():
    options = {"epochs": 3, "shuffle": False}
    (_, _, expected), (_, _, heard) = in_both("fit", **options)
    assert heard == expected
    assert heard[:4] == [0, 1, "end", "begin"], "two batches tell the shapes"


@pytest.mark.filterwarnings("ignore:Your input ran out of data")
@pytest.mark.filterwarnings("ignore:The data set has")
@pytest.mark.parametrize("counts", [(6, 6, 3, 5), (3, 3, 6, 6), (3, 4, 5, 2, 2)], ids=str)
def test_another_number_of_batches_in_an_epoch_is_that_of_keras(counts):
    options = {"epochs": 3, "shuffle": False}
    (one, expected, _), (two, history, _) = in_both("fit", lambda: Batches(counts), **options)
    assert history.history["loss"] == pytest.approx(expected.history["loss"], rel=1e-5)
    for weights in zip(one.get_weights(), two.get_weights(), strict=True):
        np.testing.assert_allclose(*weights, rtol=1e-5, atol=1e-7)


def test_a_shorter_epoch_is_told():
    with pytest.warns(UserWarning, match="has 3 batches in this epoch, and had 6"):
        towers.fit(network(), Batches((6, 3)), verbose=0)


@pytest.mark.parametrize("shuffle", [False, True])
def test_batches_of_several_lengths_train_in_any_order(shuffle):
    make = lambda: Batches(lengths=(9, 4, 4, 4, 7, 4))  # noqa: E731
    for options in ({"epochs": 3, "shuffle": shuffle}, {"shuffle": shuffle, "steps_per_epoch": 2}):
        (_, expected, _), (_, history, _) = in_both("fit", make, **options)
        if not shuffle:
            assert history.history["loss"] == pytest.approx(expected.history["loss"], rel=1e-5)


def test_a_length_that_the_first_batches_did_not_show_is_told_in_one_sentence():
    data = Batches(lengths=(9, 9, 4, 9, 9, 9))
    with pytest.raises(ValueError, match=r"^Which lengths .* say \(None, 9, 3\)\. .*\(4, 4, 3\)"):
        towers.fit(network(), data, verbose=0, shuffle=False)


def running():
    """The threads and processes that Python started and that run now."""
    threads = [one for one in threading.enumerate() if type(one) is not threading._DummyThread]
    return {*threads, *multiprocessing.active_children()}


def left_behind(before):
    """The workers of Keras that still run, after some patience, as numbers of both kinds."""
    for _ in range(300):
        others = running() - before
        threads = [one for one in others if isinstance(one, threading.Thread)]
        count = len(threads), len(others) - len(threads)
        if count == (0, 0):
            break
        time.sleep(0.1)
    return count


WORKERS = [
    {"workers": 3},
    pytest.param({"workers": 2, "use_multiprocessing": True}, marks=pytest.mark.slow),
]


@pytest.mark.parametrize("options", WORKERS, ids=str)
def test_its_workers_end_with_each_pass(options):
    model, own = network(), {"verbose": 0, "towers": tower_devices(2)}
    before = running()
    for _ in range(2):
        towers.fit(model, Batches(**options), epochs=2, validation_data=Batches(**options), **own)
        towers.fit(model, Batches(**options), epochs=2, steps_per_epoch=3, **own)
        towers.evaluate(model, Batches(**options), **own)
        towers.evaluate(model, Batches(**options), steps=2, **own)
        towers.predict(model, Batches(**options), steps=2, **own)
    assert left_behind(before) == (0, 0)

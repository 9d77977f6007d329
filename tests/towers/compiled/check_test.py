"""`towers.check` tells whether a model trains on towers as on one, and leaves it as it was."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import towers
from tests.helpers import tower_devices
from tests.towers.compiled.own_code_test import Own

RANDOM = np.random.default_rng(2)
X = RANDOM.normal(size=(39, 4)).astype("float32")
Y = RANDOM.normal(size=(39, 2)).astype("float32")


class Centred(keras.layers.Layer):
    def call(self, inputs):
        return inputs - tf.reduce_mean(inputs, axis=0, keepdims=True)


def ranks(y, outputs):
    return tf.square(y - outputs) + tf.reduce_mean(outputs)


def network(*middle, loss="mse"):
    keras.utils.set_random_seed(1)
    layers = keras.layers
    model = keras.Sequential(
        [keras.Input((4,)), layers.Dense(5, "tanh", name="first"), *middle, layers.Dense(2)],
        name="mine",
    )
    model.compile(keras.optimizers.Adam(0.01), loss, metrics=["mae"])
    return model


def own():
    keras.utils.set_random_seed(1)
    model = Own()
    model.compile("adam", "mse")
    return model


def check(model, updates=4, **options):
    return towers.check(model, X, Y, 13, towers=tower_devices(3), updates=updates, **options)


def test_a_clean_model_trains_as_on_one_tower_and_is_then_as_it_was():
    model, other = network(keras.layers.Dropout(0.5)), network(keras.layers.Dropout(0.5))
    weights = model.get_weights()
    report = check(model)
    assert report.same and report.difference < 1e-6 and not report.name.startswith("functional")
    assert report.way == "the towers' own step"
    assert report.notes == ["off in this check, since drawn: " + model.layers[1].name]
    assert report.updates == 6 and min(report.milliseconds) > 0
    assert report.num_bytes == (37 * 4, 2 * 37 * 4 + 12)
    for before, after in zip(weights, model.get_weights(), strict=True):
        np.testing.assert_array_equal(after, before)
    assert int(model.optimizer.iterations) == 0
    options = {"towers": tower_devices(2), "verbose": 0, "seed": 1}
    histories = [towers.fit(one, X, Y, 13, **options).history for one in (model, other)]
    assert histories[0] == histories[1]
    for one, two in zip(model.get_weights(), other.get_weights(), strict=True):
        np.testing.assert_array_equal(one, two)


class Drawn(keras.utils.PyDataset):
    """Batches that are others each time that they are read."""

    def __len__(self):
        return 3

    def __getitem__(self, index):
        rows = RANDOM.integers(0, 39, 13)
        return X[rows], Y[rows]


@pytest.mark.parametrize("kind", ["tf.data", "PyDataset"])
def test_data_that_is_shuffled_anew_each_time_is_the_same_for_all_trainings(kind):
    shuffled = tf.data.Dataset.from_tensor_slices((X, Y)).shuffle(39).batch(13)
    data = shuffled if kind == "tf.data" else Drawn()
    report = towers.check(network(), data, towers=tower_devices(2), updates=4)
    assert report.same and report.tolerance < 1e-5


@pytest.mark.slow
def test_batch_norm_of_each_towers_rows_is_named_and_the_synchronized_one_is_exact():
    report = check(network(keras.layers.BatchNormalization()))
    assert not report.same and report.difference > 1e-4
    assert "OTHERWISE" in str(report) and "(synchronized=True: all)" in str(report)
    assert check(network(keras.layers.BatchNormalization(synchronized=True))).same


def test_large_states_hide_no_difference_of_weights():
    norm = keras.layers.Normalization(mean=0.0, variance=1e9)
    report = check(network(norm, keras.layers.BatchNormalization()))
    assert not report.same
    assert report.difference > 1e-6


def test_what_couples_the_rows_of_a_batch_is_named_and_exact():
    report = check(network(Centred(name="centred")))
    assert report.same and report.way == "layers only, since the model couples the rows of a batch"
    assert "/CPU:1 alone runs centred (couples the rows of a batch)" in report.notes
    report = check(network(loss=ranks))
    assert report.same and "the loss 'ranks' couples the rows of a batch" in report.way


@pytest.mark.slow
def test_own_steps_with_optimizers_that_are_made_late_leave_no_trace():
    """Also the noise that the step draws is the same again."""
    model, other = own(), own()
    report = check(model)
    assert report.same and "Own has a train_step() of its own" in report.way
    assert len(str(report).splitlines()) <= 10
    options = {"towers": tower_devices(2), "verbose": 0, "shuffle": False}
    for one in (model, other):
        keras.utils.set_random_seed(4)
        towers.fit(one, X, Y, 13, **options)
    np.testing.assert_array_equal(model.average, other.average)
    assert int(model.optimizers["first"].iterations) == 3


def test_an_error_on_the_way_leaves_the_model_as_it_was():
    model = network()
    weights = model.get_weights()
    with pytest.raises(towers.actions.NonFiniteGradientError):
        towers.check(model, np.where(np.arange(39)[:, None] > 30, np.inf, X), Y, 13)
    for before, after in zip(weights, model.get_weights(), strict=True):
        np.testing.assert_array_equal(after, before)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"x": (pair for pair in [(X, Y)]), "y": None}, "A generator is read only once"),
        ({"x": X[:0], "y": Y[:0]}, "nothing to train on"),
        ({"towers": 1}, "2 towers or more"),
        ({"updates": 0}, "1 update or more"),
    ],
    ids=["generator", "examples", "towers", "updates"],
)
def test_what_cannot_be_compared_is_refused(wrong, message):
    with pytest.raises(ValueError, match=message):
        towers.check(network(), **{"x": X, "y": Y, "batch_size": None, **wrong})


def test_a_terminal_shows_what_takes_long_and_keeps_nothing_of_it(monkeypatch, capsys):
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    towers.check(network(), X, Y, towers=tower_devices(2), updates=1)
    shown = capsys.readouterr().err.split("\r\x1b[K")
    one = "training mine on 1 tower ..."
    assert shown == [one, one, "training mine on 2 towers ...", ""]

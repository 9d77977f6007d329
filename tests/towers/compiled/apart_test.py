"""Losses and metrics with a value for each row keep the towers' own step, whoever wrote them."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers, ops

import towers
from tests.helpers import tower_devices
from tests.towers.compiled.fit_test import check_trains_as_keras

pytestmark = pytest.mark.usefixtures("float64")
RANDOM = np.random.default_rng(8)
X, Y = RANDOM.normal(size=(20, 4)), RANDOM.normal(size=(20, 3))
PICTURES = RANDOM.uniform(size=(20, 4, 4, 1))


def distance(y_true, y_pred):
    return ops.mean(ops.abs(y_true - y_pred), axis=-1)


def network(loss="mse", **options):
    model = keras.Sequential([keras.Input((4,)), layers.Dense(3), layers.Dense(3)])
    model.compile(keras.optimizers.SGD(0.1), loss, **options)
    return model


def segmenting(loss):
    convolution = layers.Conv2D(1, 3, padding="same", activation="sigmoid")
    model = keras.Sequential([keras.Input((4, 4, 1)), convolution])
    model.compile(keras.optimizers.SGD(0.1), loss)
    return model


CASES = {
    "metric": (lambda: network(metrics=[distance]), (X, Y)),
    "metric with options": (
        lambda: network(metrics=[keras.metrics.MeanMetricWrapper(distance, name="own")]),
        (X, Y),
    ),
    "weighted metric": (
        lambda: network(weighted_metrics=[distance]),
        (tf.data.Dataset.from_tensor_slices((X, Y, RANDOM.uniform(size=20))).batch(8),),
    ),
    "dice": (
        lambda: segmenting(keras.losses.Dice(axis=(1, 2, 3))),
        (PICTURES, np.round(PICTURES)),
    ),
    "tversky": (
        lambda: segmenting(keras.losses.Tversky(axis=(1, 2, 3))),
        (PICTURES, np.round(PICTURES)),
    ),
}
TOGETHER = {
    "metric over rows": lambda y_true, y_pred: ops.abs(y_pred - ops.mean(y_pred, 0))[:, 0],
    "metric of a batch": lambda y_true, y_pred: ops.max(ops.abs(y_true - y_pred)),
}


@pytest.mark.parametrize("name", CASES)
def test_values_of_rows_keep_the_own_step(name, capsys):
    make, data = CASES[name]
    options = {"batch_size": None} if len(data) == 1 else {}
    check_trains_as_keras(make, lambda: data, 3, verbose=2, **options)
    assert "layers only" not in capsys.readouterr().out


@pytest.mark.parametrize("name", TOGETHER)
def test_values_that_depend_on_other_rows_do_not(name, capsys):
    metric = TOGETHER[name]
    check_trains_as_keras(lambda: network(metrics=[metric]), lambda: (X, Y), 3, verbose=2)
    assert "layers only, since the metric" in capsys.readouterr().out


def two_outputs():
    inputs = keras.Input((4,))
    outputs = [layers.Dense(3, "softmax", name="p")(inputs), layers.Dense(1, name="q")(inputs)]
    model = keras.Model(inputs, outputs)
    losses = ["sparse_categorical_crossentropy", "mse"]
    model.compile(keras.optimizers.SGD(0.1), losses)
    return model


@pytest.mark.parametrize(
    ("make", "labels"),
    [
        (two_outputs, (np.arange(20) % 3, Y[:, :1])),
        (lambda: network(distance), Y),
        (lambda: network(metrics=[distance]), Y),
    ],
    ids=["outputs", "loss", "metric"],
)
def test_who_is_asked_draws_no_order(make, labels):
    """A shuffle has an order of its own each time that it is read."""
    results = []
    for fit in (keras.Model.fit, towers.fit):
        keras.utils.set_random_seed(1)
        batches = tf.data.Dataset.from_tensor_slices((X, labels)).shuffle(20, seed=7).batch(5)
        own = {"towers": tower_devices(2)} if fit is towers.fit else {}
        results.append(
            fit(make(), batches, epochs=2, shuffle=False, verbose=0, **own).history["loss"]
        )
    np.testing.assert_allclose(results[1], results[0], rtol=1e-12)

"""Keras's cross-entropies compute from the logits behind an output, also where towers join it.

From probabilities they would be clipped, and without a gradient where a model is sure and wrong.
"""

import contextlib

import keras
import numpy as np
import pytest
import tensorflow as tf

import towers
from tests.helpers import tower_devices
from tests.towers.compiled.fit_test import check_trains_as_keras
from towers.steps import parallel

pytestmark = pytest.mark.usefixtures("float64")
layers = keras.layers
RANDOM = np.random.default_rng(4)
X = RANDOM.normal(size=(20, 4)) * 100  # So that outputs are 0 and 1 at the start.
CLASSES = RANDOM.integers(0, 3, size=(20, 1))
ONE_HOT = np.eye(3)[CLASSES[:, 0]]
ENDS = {
    "softmax": ([layers.Dense, {"units": 3, "activation": "softmax"}], "sparse_categorical_"),
    "op_softmax": ([layers.Dense, {"units": 3, "activation": tf.nn.softmax}], "categorical_"),
    "layer": ([layers.Softmax, {}], "categorical_"),
    "sigmoid": ([layers.Dense, {"units": 3, "activation": "sigmoid"}], "binary_"),
    "op_sigmoid": ([layers.Dense, {"units": 3, "activation": tf.sigmoid}], "binary_"),
    # Keras takes the logits of its own softmax as those of a sigmoid, but not those of an op.
    "softmax_as_sigmoid": ([layers.Dense, {"units": 3, "activation": "softmax"}], "binary_"),
    "op_as_sigmoid": ([layers.Dense, {"units": 3, "activation": tf.nn.softmax}], "binary_"),
    "op_as_softmax": ([layers.Dense, {"units": 3, "activation": tf.sigmoid}], "categorical_"),
}


class Own(keras.Sequential):
    """Has a step of its own."""

    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            outputs = self(x, training=True)
            loss = self.compute_loss(x, y, outputs)
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply(gradients, self.trainable_variables)
        return {"own": loss, **self.compute_metrics(x, y, outputs)}


def largest(y_true, y_pred):
    return keras.ops.max(y_pred)


def network(end, way):
    (layer, options), loss = ENDS[end]
    kind = Own if way == "own_step" else keras.Sequential
    model = kind([keras.Input((4,)), layers.Dense(3), layer(**options)])
    of_loss = "accuracy" if loss == "binary_" else f"{loss}accuracy"
    model.compile(
        keras.optimizers.SGD(0.01),
        f"{loss}crossentropy",
        metrics=[largest if way == "own_metric" else of_loss, f"{loss}crossentropy"],
        run_eagerly=way == "eager",
    )
    return model


def labels_for(end):
    return CLASSES if ENDS[end][1].startswith("sparse") else ONE_HOT


@pytest.mark.parametrize(
    "end, way, num_towers",
    [
        *((end, "own_step", 2) for end in ENDS),
        *(("softmax", way, 1) for way in ("own_step", "eager")),
        *((end, "own_metric", 2) for end in ("softmax", "op_sigmoid")),
        *((end, "eager", 2) for end in ("sigmoid", "op_softmax")),
    ],
)
def test_a_sure_output_is_trained_as_in_keras(end, way, num_towers):
    y = labels_for(end)
    make, validation_data = lambda: network(end, way), (X[:7], y[:7])
    check_trains_as_keras(make, lambda: (X, y), num_towers, validation_data=validation_data)


@pytest.mark.parametrize(
    "end, is_compiled",
    [("softmax", False), ("op_softmax", False), ("op_softmax", True), ("sigmoid", True)],
)
def test_a_loop_of_ones_own_has_the_same_loss_and_gradients(end, is_compiled):
    y = labels_for(end)
    keras.utils.set_random_seed(2)
    model, loss = network(end, "own_metric"), getattr(keras.losses, f"{ENDS[end][1]}crossentropy")

    def step(x, y):
        with tf.GradientTape() as tape:
            total = tf.reduce_mean(loss(y, model(x)))
        return total, *tape.gradient(total, model.trainable_variables)

    found = []
    for scope in (contextlib.nullcontext(), towers.layers_on(tower_devices(2))):
        function = tf.function(step) if is_compiled else step
        with scope:
            found.append([function(tf.constant(X), tf.constant(y)) for _ in range(3)])
    for one, other in zip(*(tf.nest.flatten(each) for each in found), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-13)


def test_logits_that_are_an_output_themselves_have_the_gradients_of_both():
    def make():
        inputs = keras.Input((4,))
        logits = layers.Dense(3, name="logits")(inputs)
        model = keras.Model(inputs, [logits, layers.Softmax(name="outputs")(logits)])
        model.compile(keras.optimizers.SGD(1e-6), ["mse", "categorical_crossentropy"],
                      metrics=[largest, largest])  # fmt: skip
        return model

    check_trains_as_keras(make, lambda: (X, [ONE_HOT, ONE_HOT]))


@pytest.mark.parametrize("is_compiled", [True, False], ids=["compiled", "eager"])
def test_a_function_over_towers_has_the_same_loss_and_gradients(is_compiled):
    keras.utils.set_random_seed(2)
    model, loss = network("softmax", "own_metric"), keras.losses.sparse_categorical_crossentropy

    def step(call):
        with tf.GradientTape() as tape:
            total = tf.reduce_mean(loss(CLASSES, call(tf.constant(X))))
        return total, *tape.gradient(total, model.trainable_variables)

    def on_towers(x):
        return parallel(lambda x: model(x), tower_devices(2), x=x)

    found = [(tf.function(step) if is_compiled else step)(call) for call in (model, on_towers)]
    for one, other in zip(*found, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-13)

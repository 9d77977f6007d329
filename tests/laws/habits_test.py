"""Habits of Keras programs that were once wrong or refused: they train as Keras trains them."""

import collections
import contextlib
import json
import signal
import subprocess
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf

import towers
from tests.helpers import tower_devices
from tests.paths import ROOT
from towers.layers.calls import TWINS

pytestmark = pytest.mark.usefixtures("float64")
RANDOM = np.random.default_rng(11)
X, Y = RANDOM.normal(size=(20, 4)), RANDOM.normal(size=(20, 2))


def compiled(model, **options):
    model.compile(keras.optimizers.SGD(0.1), "mse", metrics=["mae"], **options)
    return model


def check_trains_as_keras(make, *data, **options):
    """Fits fresh models by Keras and by two towers."""
    ended = []
    for num_towers in (0, 2):
        keras.utils.set_random_seed(3)
        model = make()
        before = model.get_weights()
        more = {"batch_size": 8, "epochs": 2, "shuffle": False, "verbose": 0, **options}
        if num_towers:
            history = towers.fit(model, *data, towers=tower_devices(num_towers), **more)
        else:
            history = model.fit(*data, **more)
        ended.append((history.history, model.get_weights()))
        assert any(not np.array_equal(*p) for p in zip(before, model.get_weights(), strict=True))
    (history, weights), (other, received) = ended
    for name, values in history.items():
        np.testing.assert_allclose(other[name], values, rtol=1e-12, err_msg=name)
    for one, two in zip(weights, received, strict=True):
        np.testing.assert_allclose(two, one, rtol=1e-12, atol=1e-13)


class WithPrototypes(keras.layers.Layer):
    """Returns distances to prototypes, and the prototypes: an output without rows."""

    def build(self, shape):
        self.prototypes = self.add_weight(shape=(5, shape[-1]), initializer="normal")

    def call(self, inputs):
        apart = keras.ops.expand_dims(inputs, 1) - self.prototypes
        return {"distances": keras.ops.sum(apart**2, -1), "prototypes": 1.0 * self.prototypes}


@pytest.mark.parametrize("batch_size", [8, pytest.param(20, marks=pytest.mark.slow)])
def test_predict_gives_an_output_without_rows_as_often_as_keras(batch_size):
    inputs = keras.Input((4,))
    model = keras.Model(inputs, WithPrototypes()(keras.layers.Dense(3)(inputs)))
    expected = model.predict(X, batch_size=batch_size, verbose=0)
    for number in (2, 3):
        actual = towers.predict(
            model, X, batch_size=batch_size, towers=tower_devices(number), verbose=0
        )
        for name, values in expected.items():
            np.testing.assert_allclose(actual[name], values, rtol=1e-12, err_msg=name)


def test_texts_train_with_jit_compile_again_and_again():
    """XLA knows no texts, which Keras tells."""
    texts = tf.constant(["a", "b", "c", "d"] * 5)

    def lookup(**options):
        table = keras.layers.StringLookup(vocabulary=["a", "b", "c"], output_mode="one_hot")
        layers = [keras.Input((), dtype="string"), table, keras.layers.Dense(2)]
        return compiled(keras.Sequential(layers), **options)

    ended = []
    for jit_compile in (False, True, True):
        keras.utils.set_random_seed(3)
        told = pytest.warns(UserWarning, match="support .jit_compile=True")
        with told if jit_compile else contextlib.nullcontext():
            model = lookup(jit_compile=jit_compile)
        for _ in range(2):
            towers.fit(model, texts, Y, towers=tower_devices(2), shuffle=False, verbose=0)
        ended.append(model.get_weights())
    for weights in ended[1:]:
        for one, other in zip(ended[0], weights, strict=True):
            np.testing.assert_array_equal(other, one)


class MeanOfRagged(keras.layers.Layer):
    def call(self, inputs):
        return tf.reduce_mean(inputs, axis=1) if isinstance(inputs, tf.RaggedTensor) else inputs


class OfRagged(keras.Model):
    """Takes ragged numbers alone."""

    def __init__(self):
        super().__init__()
        self.mean, self.dense = MeanOfRagged(), keras.layers.Dense(2)
        self.dense.build((None, 3))
        self.built = True

    def call(self, inputs):
        return self.dense(self.mean(inputs))


def test_ragged_tensors_alone_are_trained_as_in_keras():
    lengths = RANDOM.integers(1, 5, 20)
    ragged = tf.RaggedTensor.from_row_lengths(RANDOM.normal(size=(lengths.sum(), 3)), lengths)
    dataset = tf.data.Dataset.from_tensor_slices((ragged, Y)).batch(8)
    check_trains_as_keras(lambda: compiled(OfRagged(), jit_compile=False), dataset, batch_size=None)


@pytest.mark.slow
def test_a_recurrent_layer_keeps_its_state_between_batches():
    def carrying():
        inputs = keras.Input(batch_shape=(5, 2, 2))
        hidden = keras.layers.LSTM(3, stateful=True)(inputs)
        return compiled(keras.Model(inputs, keras.layers.Dense(2)(hidden)), jit_compile=False)

    check_trains_as_keras(carrying, X.reshape(20, 2, 2), Y, batch_size=5)


class Traced(keras.layers.Layer):
    """Its call is a `tf.function` with a loop, which draws, counts and sums over all rows."""

    def build(self, shape):
        self.kernel = self.add_weight(shape=(shape[-1], 3))
        self.count = self.add_weight(shape=(), initializer="zeros", trainable=False)
        self.dropout = keras.layers.Dropout(0.0, seed=1)
        self.norm = keras.layers.BatchNormalization(synchronized=True)
        self.norm.build((None, 3))

    @tf.function
    def call(self, inputs, training=False):
        hidden = inputs @ self.kernel
        for _ in tf.range(2):
            hidden = tf.tanh(hidden)
        if training:
            self.count.assign(self.count + 1.0)
        return self.norm(self.dropout(hidden, training=training), training=training)


class OwnStep:
    """Beside a model: a step of its own by name."""

    def train_step(self, data):
        return super().train_step(data)


@pytest.mark.filterwarnings("ignore:.*___pyct_anno:DeprecationWarning")  # Of autograph, on 3.13.
@pytest.mark.parametrize(
    "own", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["keras's step", "own step"]
)
def test_a_layer_whose_call_is_a_function_is_trained_as_in_keras(own):
    kind = type("Own", (OwnStep, keras.Sequential), {}) if own else keras.Sequential
    check_trains_as_keras(
        lambda: compiled(kind([keras.Input((4,)), Traced(), keras.layers.Dense(2)])), X, Y
    )


class NoisyCell(keras.layers.Layer):
    """Has dropout of its own, so that the loop over the tokens draws."""

    state_size = output_size = 6

    def __init__(self):
        super().__init__()
        self.dropout = keras.layers.Dropout(0.5, seed=1)

    def build(self, shape):
        self.kernel = self.add_weight(shape=(shape[-1], 6), initializer="ones")

    def call(self, x, states, training=None):
        return self.dropout(x @ self.kernel, training=training), states


def test_a_cell_that_draws_at_each_token_is_trained_as_in_keras():
    x, y = np.ones([6, 4, 1], "float32"), np.zeros([6, 4, 6], "float32")

    def trained(fit, **options):
        model = keras.Sequential(
            [keras.Input((4, 1)), keras.layers.RNN(NoisyCell(), return_sequences=True)]
        )
        model.compile(keras.optimizers.SGD(0.1), "mse")
        fit(model, x, y, batch_size=6, epochs=3, verbose=0, shuffle=False, **options)
        return model.get_weights()[0]

    expected = trained(keras.Model.fit)
    np.testing.assert_allclose(trained(towers.fit, towers=1), expected, rtol=1e-6)
    assert np.ptp(trained(towers.fit, towers=2)) > 0  # As the masks differ.


@pytest.mark.parametrize("size", [10, pytest.param(20, marks=pytest.mark.slow)])
def test_a_layer_whose_call_is_a_function_keeps_no_values_of_a_tower(size):
    """A tower has 10 rows at first, with which the layer is asked; later these are the batch."""
    layer = Traced()
    layer.build((None, 4))
    with towers.layers_on(tower_devices(2)):
        found = [layer(tf.constant(X[:rows])) for rows in (20, size)]
    np.testing.assert_allclose(layer(tf.constant(X[:size])), found[1], rtol=1e-12)
    expected = np.tanh(np.tanh(X @ layer.kernel.numpy())) / np.sqrt(1 + layer.norm.epsilon)
    for one in found:
        np.testing.assert_allclose(one, expected[: len(one)], rtol=1e-12)


class Centred(keras.layers.Layer):
    def call(self, inputs):
        return inputs - keras.ops.mean(inputs, axis=0)


def between_devices(depth):
    """Returns how many floats with rows go from a device to another in a deep model's graph.

    A layer at its end couples the rows, so that the model is entered.
    """
    hidden = [keras.layers.Dense(4, "tanh") for _ in range(depth)]
    model = keras.Sequential([keras.Input((4,)), *hidden, Centred(), keras.layers.Dense(1)])

    @tf.function
    def step(x):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(model(x) ** 2)
        return tape.gradient(loss, model.trainable_variables)

    with towers.layers_on(tower_devices(2)):
        step(tf.constant(X))
        step(tf.constant(X))
        (twin,) = vars(step)[TWINS].values()
        graph = twin.get_concrete_function(tf.TensorSpec([None, 4], tf.float64)).graph
    needed, rest = set(), [one.op for one in graph.outputs]
    while rest:
        one = rest.pop()
        if one not in needed:
            needed.add(one)
            rest += [*one.control_inputs, *(tensor.op for tensor in one.inputs)]
    moved = collections.Counter()
    for one in needed:
        for tensor in one.inputs:
            moved[tensor.ref()] += bool(
                tensor.dtype.is_floating and tensor.shape.rank == 2
                and tensor.shape[0] is None and tensor.op.device != one.device
            )  # fmt: skip
    return sum(map(bool, moved.values()))


def test_between_the_layers_of_a_model_that_is_entered_nothing_travels():
    """Neighbours that treat rows apart are as one, however many there are."""
    assert between_devices(1) == between_devices(4) > 0


def train(*arguments):
    command = [sys.executable, "-m", "tests.laws.own_code_worker", *map(str, arguments)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.mark.slow
@pytest.mark.parametrize("when", [(0, 1), (1, 2), (2, 0)])
def test_own_code_that_was_killed_goes_on_with_the_same_bits(when, tmp_path):
    epochs, history, weights = json.loads(train(tmp_path / "whole", 3).stdout)
    assert epochs == [0, 1, 2]
    assert train(tmp_path / "run", 3, *when).returncode == -signal.SIGKILL
    again = train(tmp_path / "run", 3)
    told, later, received = json.loads(again.stdout)
    begun = told[0]
    assert told == epochs[begun:] and begun <= when[0] and again.returncode == 0
    assert later["loss"] == history["loss"][begun:]
    assert received == weights

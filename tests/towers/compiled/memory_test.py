"""A training leaves the arrays of a Python function as they are, and learns from them.

TensorFlow takes over their memory where it is aligned, and would compute in place in a slice of it.
"""

import contextlib
import gc
import os

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import ops

import towers
from tests.helpers import tower_devices

pytestmark = pytest.mark.usefixtures("float64")
RANDOM = np.random.default_rng(3)
SHAPE, SIZE = (16, 8), 8
SPEC = tf.TensorSpec([None, SHAPE[1]], tf.float64)


def aligned():
    """Returns an array of random numbers in memory that begins at a multiple of 64 bytes."""
    buffer = np.empty(8 * np.prod(SHAPE) + 64, np.uint8)
    start = -buffer.ctypes.data % 64
    array = buffer[start : start + 8 * np.prod(SHAPE)].view(np.float64).reshape(SHAPE)
    array[:] = RANDOM.normal(size=SHAPE)
    return array


class Centred(keras.layers.Layer):
    """A layer in which rows meet, so that the towers run layers only."""

    def call(self, x):
        return x - ops.mean(x, 0, keepdims=True)


def network(couples):
    """Returns a model whose loss and first layer compute in place, if they may."""
    keras.utils.set_random_seed(0)
    first = [keras.layers.Rescaling(2.0), keras.layers.Activation("tanh")]
    layers = [*first, *([Centred()] if couples else []), keras.layers.Dense(8)]
    model = keras.Sequential([keras.Input((8,)), *layers])
    model.compile(keras.optimizers.SGD(0.1), "msle")
    return model


class Slices(keras.utils.PyDataset):
    def __init__(self, arrays):
        super().__init__()
        self.arrays = arrays

    def __len__(self):
        return len(self.arrays[0]) // SIZE

    def __getitem__(self, index):
        return tuple(array[SIZE * index : SIZE * index + SIZE] for array in self.arrays)


def generator(arrays):
    while True:
        yield from map(Slices(arrays).__getitem__, range(2))


def data_set(arrays):
    return tf.data.Dataset.from_generator(lambda: generator(arrays), output_signature=(SPEC, SPEC))


@pytest.mark.parametrize(("couples", "accumulate"), [(False, 1), (False, 2), (True, 1)])
@pytest.mark.parametrize("kind", [Slices, generator, data_set])
def test_fit_leaves_arrays_as_they_are(kind, couples, accumulate):
    arrays = aligned(), aligned()
    before, results = [array.copy() for array in arrays], []
    options = {"epochs": 3, "steps_per_epoch": 2, "shuffle": False, "verbose": 0}
    for number in (0, 1, 2):
        model = network(couples)
        own = {"towers": tower_devices(number), "accumulate": accumulate} if number else {}
        fit = towers.fit if number else keras.Model.fit
        results.append(fit(model, kind(arrays), **options, **own).history["loss"])
        for array, expected in zip(arrays, before, strict=True):
            np.testing.assert_array_equal(array, expected)
    np.testing.assert_allclose(results[1:], [results[0]] * 2, rtol=1e-12)


@pytest.mark.parametrize("call", ["fit", "evaluate"])
def test_what_runs_on_layers_leaves_arrays_as_they_are(call):
    arrays, model = (aligned(), aligned()), network(couples=False)
    before = [array.copy() for array in arrays]
    with towers.layers_on(tower_devices(2)):
        getattr(model, call)(Slices(arrays), verbose=0)
    for array, expected in zip(arrays, before, strict=True):
        np.testing.assert_array_equal(array, expected)


def in_a_loop(model, x):
    """Calls the model with a variable of the loop."""
    start = tf.constant(0), tf.zeros([], x.dtype), x
    _, total, _ = tf.while_loop(
        lambda index, *_: index < 2,
        lambda index, total, x: (index + 1, total + tf.reduce_sum(model(x) ** 2), x / 2),
        start,
    )
    return total


def forward(model, x):
    """Takes a derivative in forward mode."""
    with tf.autodiff.ForwardAccumulator(x, tf.ones_like(x)) as accumulator:
        outputs = model(x)
    return tf.reduce_sum(accumulator.jvp(outputs) ** 2 + outputs)


@pytest.mark.parametrize("compute", [in_a_loop, forward])
def test_what_is_cut_in_a_graph_has_gradients(compute):
    model, found, array = network(couples=False), [], aligned()
    for scope in (contextlib.nullcontext(), towers.layers_on(tower_devices(2))):

        @tf.function
        def gradients(x):
            with tf.GradientTape() as tape:
                loss = compute(model, x)
            return tape.gradient(loss, model.trainable_variables)

        with scope:  # It is traced again for the last number of rows.
            found.append([gradients(tf.constant(array[:size])) for size in (8, 8, 5)])
    expected, received = (tf.nest.flatten(one) for one in found)
    for one, other in zip(received, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-12)


def test_what_reads_a_generator_goes_with_the_training():
    def batches():
        while True:
            yield np.zeros((4, 3), "float32"), np.zeros((4, 2), "float32")

    model = keras.Sequential([keras.layers.Dense(2)])
    model.compile("sgd", "mse")
    counts = []
    for _ in range(4):
        towers.fit(model, batches(), steps_per_epoch=2, epochs=2, verbose=0, towers=1)
        towers.evaluate(model, batches(), steps=2, verbose=0, towers=1)
        gc.collect()
        counts.append(len(os.listdir("/proc/self/task")))
    assert counts[-1] == counts[1]

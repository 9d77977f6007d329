"""Accuracies over many classes take one pass over the outputs, with the results of Keras."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import towers
from tests.helpers import tower_devices
from towers.compiled import argmax
from towers.compiled.argmax import MANY, argmax_in_one_pass

RANDOM = np.random.default_rng(8)
SMALLEST = np.finfo(np.float32).tiny
ZEROS = np.full([3, MANY], -1, np.float32)
ZEROS[:, 5], ZEROS[1:, 7], ZEROS[2, 9] = -0.0, 0.0, SMALLEST / 2


@tf.function(input_signature=[tf.TensorSpec([None, MANY])])
def largest(x):
    with argmax_in_one_pass(), tf.device("CPU:0"):
        return keras.ops.argmax(tf.identity(x), axis=-1)


@pytest.mark.parametrize(
    "rows",
    [
        RANDOM.normal(size=[6, MANY]),
        -np.abs(RANDOM.normal(size=[6, MANY])),
        np.round(RANDOM.normal(size=[6, MANY])),  # The largest entry is there many times.
        ZEROS,
        np.concatenate([ZEROS, RANDOM.normal(size=[2, MANY])]),
        np.full([2, MANY], np.nan),
        np.full([2, MANY], -np.inf),
        np.zeros([0, MANY]),
    ],
)
def test_the_largest_entry_is_the_one_that_keras_finds(rows):
    rows = rows.astype("float32")
    np.testing.assert_array_equal(largest(rows), keras.ops.argmax(rows, axis=-1))


def test_outputs_of_unknown_rank_are_left_to_keras():
    @tf.function(input_signature=[tf.TensorSpec(None)])
    def largest_of_any(x):
        with argmax_in_one_pass(), tf.device("CPU:0"):
            return keras.ops.argmax(tf.identity(x), axis=-1)

    np.testing.assert_array_equal(largest_of_any(ZEROS), keras.ops.argmax(ZEROS, axis=-1))


def test_other_arguments_and_fewer_entries_are_left_to_keras():
    for x, options in (
        (ZEROS[:, :20], {"axis": -1}),
        (ZEROS, {"axis": 0}),
        (ZEROS, {}),
        (ZEROS, {"axis": -1, "keepdims": True}),
        (ZEROS.astype("float64"), {"axis": 1}),
        (np.arange(MANY), {"axis": 0}),
    ):
        with argmax_in_one_pass():
            found = keras.ops.argmax(x, **options)
        np.testing.assert_array_equal(found, keras.ops.argmax(x, **options))


@pytest.mark.parametrize("metric", ["accuracy", "sparse_categorical_accuracy"])
def test_metrics_of_a_step_take_one_pass_and_are_those_of_keras(metric, monkeypatch):
    x = RANDOM.normal(size=(12, 4)).astype("float32")
    y = RANDOM.integers(MANY, size=[12, 1])
    original, made = argmax.argmax, []

    def recorded(*args, **options):
        made.append(original(*args, **options))
        return made[-1]

    monkeypatch.setattr(argmax, "argmax", recorded)

    def train(fit, **options):
        keras.utils.set_random_seed(1)
        model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(MANY, use_bias=False)])
        # All outputs are zeros of both signs at first.
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(keras.optimizers.SGD(5.0), loss, metrics=[metric])
        model.layers[0].set_weights([np.zeros([4, MANY], np.float32)])
        return fit(model, x, y, epochs=3, batch_size=4, shuffle=False, verbose=0, **options)

    expected = train(keras.Model.fit).history
    found = train(towers.fit, towers=tower_devices(2)).history
    assert [tensor.op.type for tensor in made].count("Identity") == 2  # A choice in each tower.
    np.testing.assert_array_equal(found[metric], expected[metric])

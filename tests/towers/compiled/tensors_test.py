"""Batches with parts that are None, sparse or without a rank, and those that do not fit."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import towers
from tests.helpers import tower_devices
from tests.towers.compiled.fit_test import X, Y, check_trains_as_keras, network

pytestmark = pytest.mark.usefixtures("float64")
Z = np.random.default_rng(4).normal(size=(20, 1))
SPARSE = np.where(X > 0, X, 0.0)


def batches(*arrays, passes=None, rows=4):
    """Yields batches of arrays without an end, or so many passes; None stays None."""
    count = 0
    while count != passes:
        count += 1
        for start in range(0, 20, rows):
            yield tuple(None if one is None else one[start : start + rows] for one in arrays)


def test_weights_that_are_none_are_no_weights():
    check_trains_as_keras(
        network, lambda: (batches(X, Y, None),), steps_per_epoch=5, batch_size=None
    )
    dataset = tf.data.Dataset.from_tensor_slices((X, Y)).batch(4).map(lambda x, y: (x, y, None))
    check_trains_as_keras(network, lambda: (dataset,), batch_size=None)


def two_outputs():
    inputs = keras.Input((4,))
    hidden = keras.layers.Dense(5, "tanh")(inputs)
    outputs = [keras.layers.Dense(2, name="a")(hidden), keras.layers.Dense(1, name="b")(hidden)]
    return keras.Model(inputs, outputs)


def one_loss():
    model = two_outputs()
    model.compile(keras.optimizers.SGD(0.1), ["mse", None])
    return model


@pytest.mark.filterwarnings("ignore:The loss does not depend on")
@pytest.mark.filterwarnings("ignore:Gradients do not exist")
def test_labels_of_an_output_without_a_loss_may_be_none():
    check_trains_as_keras(one_loss, lambda: (X, [Y, None]))


class Plus(keras.layers.Layer):
    """Adds the sum of a second input, if there is one."""

    def call(self, inputs, others=None):
        return inputs if others is None else inputs + keras.ops.sum(others, -1, keepdims=True)


def optional_input():
    inputs = keras.Input((4,)), keras.Input((1,), optional=True)
    model = keras.Model(inputs, keras.layers.Dense(2)(Plus()(*inputs)))
    model.compile(keras.optimizers.SGD(0.1), "mse", metrics=["mae"])
    return model


@pytest.mark.parametrize("other", [None, Z], ids=["without", "with"])
def test_an_optional_input_may_be_none(other):
    check_trains_as_keras(optional_input, lambda: ((X, other), Y))
    model = optional_input()
    for method in ("evaluate", "predict"):
        data = ((X, other), Y) if method == "evaluate" else ((X, other),)
        expected = getattr(model, method)(*data, verbose=0)
        actual = getattr(towers, method)(model, *data, verbose=0, towers=tower_devices(2))
        np.testing.assert_allclose(actual, expected, rtol=1e-12)


def test_sparse_tensors_are_trained_as_in_keras():
    sparse = tf.sparse.from_dense(SPARSE)
    check_trains_as_keras(network, lambda: (sparse, Y))
    dataset = tf.data.Dataset.from_tensor_slices((sparse, Y)).batch(4)
    check_trains_as_keras(network, lambda: (dataset,), batch_size=None)


def test_matrices_of_scipy_are_trained_as_in_keras():
    matrices = pytest.importorskip("scipy.sparse")
    matrix, model = matrices.csr_matrix(SPARSE), network()
    check_trains_as_keras(network, lambda: (matrix, Y))
    check_trains_as_keras(
        network, lambda: (batches(matrix, Y),), steps_per_epoch=5, batch_size=None
    )
    actual = towers.predict(model, matrix, verbose=0, towers=tower_devices(2))
    np.testing.assert_allclose(actual, model.predict(matrix, verbose=0), rtol=1e-12)


def test_texts_are_trained_as_in_keras():
    texts = np.array(["a", "b", "c", "d"] * 5)

    def lookup():
        layers = keras.layers
        table = layers.StringLookup(vocabulary=["a", "b", "c"], output_mode="one_hot")
        model = keras.Sequential([keras.Input((), dtype="string"), table, layers.Dense(2)])
        model.compile(keras.optimizers.SGD(0.1), "mse")
        return model

    check_trains_as_keras(lookup, lambda: (texts.astype(object), Y))
    dataset = tf.data.Dataset.from_tensor_slices((texts, Y)).batch(4)
    check_trains_as_keras(lookup, lambda: (dataset,), batch_size=None)


def test_a_generator_that_ends_is_an_epoch():
    data = lambda: (batches(X, Y, passes=1),)  # noqa: E731
    with pytest.warns(UserWarning, match="ran out of data"):  # Keras's own.
        check_trains_as_keras(network, data, epochs=1, batch_size=None)
    with pytest.raises(ValueError, match="Received 2 epochs without steps_per_epoch"):
        towers.fit(network(), *data(), epochs=2, verbose=0)


def uneven(x, y):
    signature = tf.TensorSpec([None, 4], "float64"), tf.TensorSpec([None, 2], "float64")
    return tf.data.Dataset.from_generator(lambda: iter([(x, y)]), output_signature=signature)


@pytest.mark.parametrize("num_towers", [1, 2])
def test_batches_whose_tensors_differ_in_rows_are_told_in_one_sentence(num_towers):
    match = r"^All tensors of a batch must have the same number of rows[^{]*\[20 19\]$"
    options = {"verbose": 0, "towers": tower_devices(num_towers)}
    for call in (towers.fit, towers.evaluate):
        with pytest.raises(ValueError, match=match):
            call(network(), uneven(X, Y[:19]), **options)


def test_tensors_of_unknown_rank_are_trained_as_in_keras():
    dataset = tf.data.Dataset.range(2).map(
        lambda _: tf.numpy_function(lambda: (X, Y), [], [tf.float64, tf.float64])
    )
    for train in (keras.Model.fit, towers.fit):
        with pytest.raises(ValueError, match="rank"):
            train(network(), dataset, verbose=0, shuffle=False)


def test_a_fixed_number_of_rows_trains_as_in_keras():
    def fixed(layer):
        inputs = keras.Input(batch_shape=(4, 4))
        model = keras.Model(inputs, keras.layers.Dense(2)(layer(inputs)))
        model.compile(keras.optimizers.SGD(0.1), "mse")
        return model

    check_trains_as_keras(lambda: fixed(keras.layers.Dense(3)), batch_size=4)
    rows = lambda: keras.layers.Lambda(lambda inputs: keras.ops.reshape(inputs, (4, 4)))  # noqa: E731
    check_trains_as_keras(lambda: fixed(rows()), batch_size=4)


@pytest.mark.parametrize("num_towers", [1, 2])
def test_weights_of_labels_in_a_list_are_those_of_the_only_output(num_towers):
    weights = np.linspace(0.0, 2.0, len(X))

    def data():
        return tf.data.Dataset.from_tensor_slices((X, (Y,), (weights,))).batch(8)

    check_trains_as_keras(network, lambda: (data(),), num_towers, batch_size=None)
    for given in (weights, [weights]):
        check_trains_as_keras(network, lambda: (X, [Y]), num_towers, sample_weight=given)

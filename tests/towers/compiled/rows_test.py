"""Rows that meet only in some data, or only where nothing is trained, meet as in Keras."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers, ops

import towers
from tests.helpers import newer_keras, tower_devices
from tests.towers.compiled.fit_test import check_trains_as_keras
from towers.compiled.apart import why_coupled
from towers.layers.plain import needs_trace

pytestmark = pytest.mark.usefixtures("float64")
RANDOM = np.random.default_rng(6)
X, Y = RANDOM.lognormal(size=(20, 4, 3)), RANDOM.normal(size=(20, 2))
CONSTANT = tf.constant(RANDOM.normal(size=(4, 3, 20)))


def centred_logarithm(inputs):
    logarithm = ops.log(inputs)  # Of negative numbers, it is none.
    return logarithm - ops.mean(logarithm, axis=0)


def clipped(inputs):
    limit = 2.5 * ops.std(inputs)
    return ops.minimum(ops.maximum(inputs, -limit), limit)


def normalised(inputs):
    """A layer of Keras's, in which rows meet, after numbers that made-up rows have not."""
    return layers.UnitNormalization(axis=0)(ops.log(inputs))


def beyond_a_threshold(inputs):
    """Layers of Keras's alone; a few made-up rows are all 0 where they meet."""
    hidden = layers.ReLU(threshold=5.0)(layers.Rescaling(3.0)(inputs))
    return layers.UnitNormalization(axis=-3)(hidden)


def with_attention(inputs):
    """Of rows without a time axis, Keras's attention is one of each row to all."""
    hidden = layers.ReLU(threshold=5.0)(layers.Flatten()(inputs))
    return layers.Attention()([hidden, hidden])


def across_heads(inputs):
    """Multi-head attention along the rows."""
    hidden = layers.Reshape((4, 1, 3))(layers.ReLU(threshold=5.0)(inputs))
    return layers.MultiHeadAttention(1, 2, attention_axes=(0,))(hidden, hidden)


def of_one_number(inputs):
    """The last axis of a tensor with one number for each row is that of the rows."""
    hidden = layers.ReLU(threshold=5.0)(layers.Flatten()(inputs))
    number = layers.Reshape(())(layers.Dense(1, use_bias=False)(hidden))
    return layers.Reshape((1,))(layers.Activation("softmax")(number))


def activated_together(inputs):
    """A function of TensorFlow's, which divides by the norm of all numbers."""
    hidden = layers.ReLU(threshold=5.0)(layers.Flatten()(inputs))
    return layers.Activation(tf.math.l2_normalize)(hidden)


# What operations between layers compute from a batch, whose rows meet or do not.
MEETING = {
    "normalised": normalised,
    "beyond_a_threshold": beyond_a_threshold,
    "with_attention": with_attention,
    "across_heads": across_heads,
    "of_one_number": of_one_number,
    "activated_together": activated_together,
    "centred_logarithm": centred_logarithm,
    "clipped": clipped,
    "scaled": lambda inputs: inputs / ops.maximum(ops.max(inputs), 1.0),
}
APART = {
    "place": lambda inputs: inputs[:, 0],
    "attention": lambda inputs: ops.softmax(inputs @ ops.transpose(inputs, (0, 2, 1))) @ inputs,
    "centred": lambda inputs: inputs - ops.mean(inputs, axis=1, keepdims=True),
    "constant": lambda inputs: ops.einsum("abc,bcd->abd", inputs, CONSTANT),
}


def of_operations(between):
    inputs = keras.Input((4, 3))
    hidden = layers.Dense(3)(layers.Flatten()(between(inputs)))
    model = keras.Model(inputs, layers.Dense(2)(hidden * ops.sigmoid(hidden)))
    model.compile(keras.optimizers.SGD(0.001), "mse")
    return model


LACKS = newer_keras("takes no tensors of two axes in an Attention")


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=LACKS) if name == "with_attention" else name
        for name in (*MEETING, *APART)
    ],
)
def test_operations_between_layers_train_as_in_keras(capsys, name):
    between = {**MEETING, **APART}[name]
    check_trains_as_keras(lambda: of_operations(between), lambda: (X, Y), epochs=1, verbose=2)
    printed = capsys.readouterr().out
    assert ("layers only, since the model couples the rows" in printed) == (name in MEETING)


@pytest.mark.parametrize(
    "compute, expected",
    [
        (lambda rows: ops.relu(rows * 2.0 + rows), False),
        (lambda rows: rows - ops.max(rows), True),
        (lambda rows, numbers: rows * numbers, True),  # Of as many rows as a row has numbers.
    ],
)
def test_operations_that_compute_one_number_from_one_need_no_trace(compute, expected):
    inputs = [keras.Input((4,)), keras.Input(())][: compute.__code__.co_argcount]
    model = keras.Model(inputs, layers.Dense(2)(compute(*inputs)))
    assert needs_trace(model, "sum") == expected


class OfTheTest(layers.Layer):
    """Scales by numbers of the batch where nothing is trained, as an adaptation does."""

    def call(self, inputs, training=False):
        return inputs if training else inputs / ops.std(inputs, axis=0)


def adapted():
    model = keras.Sequential([keras.Input((4,)), layers.Dense(3), OfTheTest(), layers.Dense(2)])
    model.compile(keras.optimizers.SGD(0.1), "mse")
    return model


def test_rows_that_meet_where_nothing_is_trained_are_evaluated_as_in_keras(capsys):
    rows = X[:, :, 0]
    check_trains_as_keras(adapted, lambda: (rows, Y), validation_data=(rows, Y), verbose=2)
    assert "couples the rows of a batch in an evaluation." in capsys.readouterr().out
    model, options = adapted(), {"batch_size": 8, "verbose": 0}
    expected = model.evaluate(rows, Y, **options)
    received = towers.evaluate(model, rows, Y, towers=tower_devices(2), **options)
    np.testing.assert_allclose(received, expected, rtol=1e-12)


def of_texts():
    words = layers.TextVectorization(vocabulary=list("abcdef"))
    model = keras.Sequential([keras.Input((), dtype="string"), words, layers.Embedding(9, 4),
                              layers.GlobalAveragePooling1D(), layers.Dense(2)])  # fmt: skip
    model.compile(keras.optimizers.SGD(0.1), "mse")
    return model


def test_texts_that_are_padded_to_the_longest_of_a_batch_train_as_in_keras():
    texts = [" ".join("abcdef"[: 1 + number % 6]) for number in range(20)]
    texts[:8] = ["a b c"] * 8
    check_trains_as_keras(of_texts, lambda: (tf.constant(texts), Y))


@pytest.mark.parametrize("loss", ["hinge", "squared_hinge"])
def test_hinges_take_labels_of_0_and_1_as_keras_does(loss):
    """As -1 and 1, if all of the batch are 0 or 1."""
    labels = np.ones((20, 2))
    labels[::5] = [[0, -1]]

    def make():
        model = keras.Sequential([keras.Input((4,)), layers.Dense(2)])
        model.compile(keras.optimizers.SGD(0.1), loss, metrics=["hinge"])
        return model

    check_trains_as_keras(make, lambda: (X[:, :, 0], labels))


def test_spectrograms_with_a_floor_below_the_loudest_of_a_batch_are_traced():
    inputs = keras.Input((4000,))
    model = keras.Model(inputs, layers.Flatten()(layers.MelSpectrogram()(inputs)))
    assert needs_trace(model, "sum")


class Positions(layers.Layer):
    """Adds to each token's vector that of its place."""

    def __init__(self):
        super().__init__()
        self.tokens, self.places = layers.Embedding(9, 4), layers.Embedding(5, 4)

    def call(self, ids):
        return self.tokens(ids) + self.places(ops.arange(ops.shape(ids)[-1]))


class Block(layers.Layer):
    """A block of a Transformer."""

    def __init__(self, dropout):
        super().__init__()
        self.attention = layers.MultiHeadAttention(2, 2, dropout=dropout)
        self.norm, self.dense = layers.LayerNormalization(), layers.Dense(4, "relu")

    def call(self, x):
        return self.dense(self.norm(x + self.attention(x, x)))


class Pairs(layers.Layer):
    """The products of a row's vectors, each pair once."""

    def __init__(self, dropout):
        super().__init__()
        self.table, self.dropout = layers.Embedding(9, 4), layers.Dropout(dropout)

    def call(self, ids):
        vectors = self.dropout(self.table(ids))
        products = ops.reshape(ops.matmul(vectors, ops.transpose(vectors, (0, 2, 1))), (-1, 25))
        return tf.gather(products, np.flatnonzero(np.triu(np.ones((5, 5)), 1)), axis=1)


class LastOne(layers.Layer):
    """The vector at a place that is the same in each row, of an own table."""

    def __init__(self, dropout):
        super().__init__()
        self.table, self.dropout = layers.Embedding(9, 4), layers.Dropout(dropout)

    def call(self, ids):
        return self.dropout(ops.take(self.table(ids), [4, 2], axis=1))


@pytest.mark.parametrize(
    "read",
    [
        lambda rate: [Positions(), Block(rate), layers.GlobalAveragePooling1D()],
        lambda rate: [Pairs(rate)],
        lambda rate: [LastOne(rate), layers.Flatten()],
    ],
    ids=["transformer", "pairs", "places"],
)
def test_what_is_looked_up_in_numbers_of_the_batch_is_no_row_of_a_table(read):
    """Layers of one's own on texts that the model reads itself have the towers' own step."""
    texts = tf.constant([" ".join("abcdef"[number % 6 :]) for number in range(20)])

    def make(rate=0.0):
        words = layers.TextVectorization(vocabulary=list("abcdef"), output_sequence_length=5)
        parts = [keras.Input((), dtype="string"), words, *read(rate), layers.Dense(2)]
        model = keras.Sequential(parts)
        model.compile(keras.optimizers.SGD(0.1), "mse")
        return model

    assert why_coupled(make(0.1), tower_devices(2), texts, training=True) is None
    check_trains_as_keras(make, lambda: (texts, Y))

"""Law 1's tolerance: what rounding does to a model, seen by a plain loop with its rows reversed."""

import keras
import numpy as np
import pytest

import towers
from tests import helpers

LENGTH, FEATURES, STEPS = 4, 3, 10


@pytest.fixture
def float64():
    towers.steps.set_precision("float64")
    yield
    towers.steps.set_precision("float32")


def attention_model():
    """The gradient of the key's bias is zero: softmax does not see what all scores share."""
    keras.utils.set_random_seed(6)
    inputs = keras.Input((LENGTH, FEATURES))
    attended = keras.layers.MultiHeadAttention(1, FEATURES, name="attention")(inputs, inputs)
    return keras.Model(inputs, keras.layers.Dense(3)(keras.layers.Flatten()(attended)))


def batches(*, reverse=False):
    random = np.random.default_rng(7)
    found = [
        (random.normal(size=(8, LENGTH, FEATURES)), random.integers(0, 3, 8).astype("int32"))
        for _ in range(STEPS)
    ]
    order = slice(None, None, -1 if reverse else 1)
    dtype = keras.config.dtype_policy().variable_dtype
    return [(inputs[order].astype(dtype), labels[order]) for inputs, labels in found]


def in_a_plain_loop(optimizer, **options):
    model = attention_model()
    return helpers.train_plainly(helpers.classify(model), model, optimizer(), batches(**options))[0]


def on_towers(optimizer):
    model = attention_model()
    return helpers.train_on_towers(
        helpers.classify(model), model, optimizer(), batches(), num_towers=2
    )[0]


def difference(actual, expected):
    """The largest difference as a part of the largest weight."""
    pairs = zip(actual, expected, strict=True)
    largest = max(np.abs(array).max() for array in expected)
    return max(np.abs(one - other).max() for one, other in pairs) / largest


def adam():
    return keras.optimizers.Adam(0.01)


def sgd():
    return keras.optimizers.SGD(0.1)


@pytest.mark.slow
def test_adam_amplifies_the_rounding_of_gradients_that_are_zero():
    """In float32, in a plain loop as on towers; so the order of the rows tells which model does."""
    expected = in_a_plain_loop(adam)
    assert difference(in_a_plain_loop(adam, reverse=True), expected) > 1e-5
    assert difference(on_towers(adam), expected) < 1e-1


def test_a_model_that_the_order_of_the_rows_does_not_move_is_the_same_on_towers():
    expected = in_a_plain_loop(sgd)
    assert difference(in_a_plain_loop(sgd, reverse=True), expected) < 1e-6
    assert difference(on_towers(sgd), expected) < 1e-6


@pytest.mark.usefixtures("float64")
@pytest.mark.slow
def test_float64_tells_rounding_from_an_error():
    expected = in_a_plain_loop(adam)
    assert difference(in_a_plain_loop(adam, reverse=True), expected) < 1e-11
    assert difference(on_towers(adam), expected) < 1e-11

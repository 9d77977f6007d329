"""Towers times micro-batches alike: the same weights to the last bit, whoever runs the parts."""

import functools

import keras
import numpy as np
import pytest

from tests import helpers

PARTS = 4
WAYS = [(2, 2), (4, 1)]  # Towers, micro-batches of each.
SIZES = [8, 7, 3, 10, 1, 13]

pytestmark = pytest.mark.usefixtures("sums_as_written")


def image_model() -> keras.Model:
    """Convolution, BatchNorm and dropout."""
    return keras.Sequential([
        keras.Input((6, 6, 3)),
        keras.layers.Conv2D(8, 3, activation="relu"),
        keras.layers.BatchNormalization(),
        keras.layers.Dropout(0.5, seed=3),
        keras.layers.Flatten(),
        keras.layers.Dense(helpers.NUM_CLASSES, kernel_regularizer="l2"),
    ])  # fmt: skip


def images_case():
    random = np.random.default_rng(1)
    batches = [
        (random.normal(size=(size, 6, 6, 3)).astype("float32"),
         random.integers(0, helpers.NUM_CLASSES, size).astype("int32"))
        for size in SIZES
    ]  # fmt: skip
    model = image_model()
    return helpers.classify(model, training=True), model, batches


def tokens_case():
    model = helpers.recurrent_model(helpers.LookupTable(name="table"))
    return helpers.tag(model), model, helpers.token_batches(SIZES)


def train(make_case, num_towers, accumulate, parameters):
    keras.utils.set_random_seed(3)
    with helpers.tower_placement(num_towers, parameters).scope():
        tower_fn, model, batches = make_case()
    return helpers.train_on_towers(
        tower_fn, model, keras.optimizers.Adam(0.01), batches, num_towers,
        accumulate=accumulate, parameters=parameters, clip_norm=0.5, seed=7,
    )  # fmt: skip


@functools.cache
def one_tower(make_case):
    """Returns the weights and the results of one tower that takes all the parts."""
    return train(make_case, 1, PARTS, "cpu")


@pytest.mark.parametrize(
    ("make_case", "parameters", "ways"),
    [
        (images_case, "replicated", WAYS[:1]),
        *(
            pytest.param(make_case, parameters, WAYS, marks=pytest.mark.slow)
            for make_case in (images_case, tokens_case)
            for parameters in ("replicated", "cpu")
        ),
    ],
)
def test_the_same_parts_give_the_same_bits(make_case, parameters, ways):
    expected, results = one_tower(make_case)
    for num_towers, accumulate in ways:
        actual, others = train(make_case, num_towers, accumulate, parameters)
        for one, other in zip(actual, expected, strict=True):
            np.testing.assert_array_equal(one, other)
        for one, other in zip(others, results, strict=True):
            assert float(one.loss) == float(other.loss)
            assert float(one.gradient_norm) == float(other.gradient_norm)


@pytest.mark.slow
@pytest.mark.parametrize("make_case", [images_case, tokens_case])
def test_other_parts_give_other_bits(make_case):
    """The test of the test: rounding, and the dropout masks, depend on the parts."""
    expected, _ = one_tower(make_case)
    actual, _ = train(make_case, 1, 2, "cpu")
    if make_case is tokens_case:  # The masks of the other one make larger differences.
        helpers.assert_same_weights(actual, expected)
    assert any(np.any(one != other) for one, other in zip(actual, expected, strict=True))

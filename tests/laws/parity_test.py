"""Law 1: N towers, one tower and a plain loop end with the same weights, whatever the batch."""

import functools

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests import helpers

SIZES = [8, 7, 8, 5]


def dense_case():
    model = helpers.dense_model()
    return helpers.classify(model), model, helpers.dense_batches(SIZES), {}


def sparse_case():
    model = helpers.recurrent_model(helpers.LookupTable(name="table"))
    return helpers.tag(model), model, helpers.token_batches(SIZES), {}


def masked_case():
    embedding = keras.layers.Embedding(helpers.VOCABULARY_SIZE, 4, mask_zero=True, name="table")
    model = helpers.recurrent_model(embedding)
    return helpers.tag(model), model, helpers.token_batches(SIZES), {}


def clipped_case():
    tower_fn, model, batches, _ = sparse_case()
    return tower_fn, model, batches, {"clip_norm": 0.05}


def accumulated_case():
    tower_fn, model, batches, _ = sparse_case()
    return tower_fn, model, batches, {"accumulate": 3, "clip_norm": 0.05}


def regularised_case():
    inputs = keras.Input((5,))
    penalty = keras.regularizers.L2(0.1)
    logits = keras.layers.Dense(3, kernel_regularizer=penalty, name="logits")(inputs)
    model = keras.Model(inputs, logits)
    return helpers.classify(model, training=True), model, helpers.dense_batches(SIZES), {}


CASES = [dense_case, sparse_case, masked_case, clipped_case, accumulated_case, regularised_case]


def sgd():
    return keras.optimizers.SGD(0.5)


def adam():
    return keras.optimizers.Adam(0.01)


def fresh(make_case):
    keras.utils.set_random_seed(3)
    return make_case()


@functools.cache
def plain(make_case, make_optimizer):
    tower_fn, model, batches, options = fresh(make_case)
    options.pop("accumulate", None)
    return helpers.train_plainly(tower_fn, model, make_optimizer(), batches, **options)


DEFAULT = [  # Each case, each number of towers and each optimizer at least once.
    (dense_case, sgd, 2),
    (sparse_case, adam, 3),
    (masked_case, adam, 2),
    (clipped_case, adam, 1),
    (accumulated_case, sgd, 2),
    (regularised_case, adam, 3),
]
FAST = [(dense_case, sgd, 2), (sparse_case, adam, 3), (clipped_case, adam, 1)]
EVERY = [
    (case, *way) for case in CASES for way in ((adam, 1), (sgd, 2), (adam, 2), (adam, 3), (sgd, 4))
]


@pytest.mark.parametrize(
    ("make_case", "make_optimizer", "num_towers"),
    [
        *(pytest.param(*way, marks=[pytest.mark.fast] * (way in FAST)) for way in DEFAULT),
        *(pytest.param(*way, marks=pytest.mark.slow) for way in EVERY if way not in DEFAULT),
    ],
)
def test_towers_match_the_plain_loop(make_case, make_optimizer, num_towers):
    expected, losses = plain(make_case, make_optimizer)
    tower_fn, model, batches, options = fresh(make_case)
    actual, results = helpers.train_on_towers(
        tower_fn, model, make_optimizer(), batches, num_towers, **options
    )
    helpers.assert_same_weights(actual, expected)
    np.testing.assert_allclose([float(result.loss) for result in results], losses, rtol=1e-5)


@pytest.mark.parametrize(
    ("make_case", "parameters"),
    [
        (clipped_case, "replicated"),
        *[
            pytest.param(case, "replicated", marks=pytest.mark.slow)
            for case in (dense_case, sparse_case, masked_case, accumulated_case, regularised_case)
        ],
        *[pytest.param(case, "nccl", marks=pytest.mark.slow) for case in CASES],
        (sparse_case, "tower0"),
        *[
            pytest.param(case, "tower0", marks=pytest.mark.slow)
            for case in (dense_case, masked_case, clipped_case, accumulated_case, regularised_case)
        ],
    ],
)
def test_every_placement_matches_the_plain_loop(make_case, parameters):
    expected, losses = plain(make_case, adam)
    with helpers.tower_placement(3, parameters).scope():
        tower_fn, model, batches, options = fresh(make_case)
    actual, results = helpers.train_on_towers(
        tower_fn, model, adam(), batches, 3, parameters=parameters, **options
    )
    helpers.assert_same_weights(actual, expected)
    np.testing.assert_allclose([float(result.loss) for result in results], losses, rtol=1e-5)


@pytest.mark.parametrize(
    ("make_case", "num_towers"),
    [
        (dense_case, 3),
        pytest.param(dense_case, 1, marks=pytest.mark.slow),
        *[
            pytest.param(case, number, marks=pytest.mark.slow)
            for case in (accumulated_case, sparse_case)
            for number in (1, 3)
        ],
    ],
)
def test_towers_match_the_plain_loop_in_float64(make_case, num_towers):
    keras.config.set_dtype_policy("float64")

    def case():
        tower_fn, model, batches, options = make_case()
        if make_case is dense_case:
            batches = helpers.dense_batches(SIZES, dtype="float64")
        return tower_fn, model, batches, options

    expected, _ = plain(case, adam)
    tower_fn, model, batches, options = fresh(case)
    actual, _ = helpers.train_on_towers(tower_fn, model, adam(), batches, num_towers, **options)
    assert actual[0].dtype == np.float64
    helpers.assert_same_weights(actual, expected, float64=True)


@pytest.mark.parametrize(
    "make_case",
    [
        dense_case,
        *(pytest.param(case, marks=pytest.mark.slow) for case in (sparse_case, accumulated_case)),
    ],
)
def test_any_batch_size_works_on_four_towers(make_case):
    """One step after another, each of another size; the loss of each tells where it went wrong."""
    batch_sizes = [1, 1, 2, 8, 3, 7, 1]

    def case():
        tower_fn, model, _, options = make_case()
        make_batches = helpers.dense_batches if make_case is dense_case else helpers.token_batches
        return tower_fn, model, make_batches(batch_sizes), options

    expected, losses = plain(case, adam)
    tower_fn, model, batches, options = fresh(case)
    actual, results = helpers.train_on_towers(tower_fn, model, adam(), batches, 4, **options)
    helpers.assert_same_weights(actual, expected)
    np.testing.assert_allclose([float(result.loss) for result in results], losses, rtol=1e-5)
    if make_case is dense_case:
        for batch_size, result in zip(batch_sizes, results, strict=True):
            weights = result.towers.weight.numpy()
            assert weights.sum() == batch_size
            assert max(weights) - min(weights) <= 1


@pytest.mark.parametrize(
    "num_towers", [3, *(pytest.param(number, marks=pytest.mark.slow) for number in (1, 2))]
)
def test_tied_embedding_matches_the_plain_loop(num_towers):
    class Tied(keras.Model):
        def __init__(self):
            super().__init__()
            self.table = self.add_weight(shape=(helpers.VOCABULARY_SIZE, 3), name="table")

        def call(self, token_ids):
            rows = tf.gather(self.table.value, token_ids)
            return tf.tanh(rows) @ tf.convert_to_tensor(self.table)[:3]

    def case():
        model = Tied()
        return helpers.tag(model), model, helpers.token_batches(SIZES), {}

    expected, _ = plain(case, adam)
    tower_fn, model, batches, _ = fresh(case)
    actual, _ = helpers.train_on_towers(tower_fn, model, adam(), batches, num_towers)
    helpers.assert_same_weights(actual, expected)


@pytest.mark.fast
def test_mean_of_tower_means_would_differ():
    """The test of the test: shards hold different numbers of tokens, so weights matter."""
    tower_fn, model, batches, _ = fresh(sparse_case)
    _, results = helpers.train_on_towers(tower_fn, model, sgd(), batches, 3)
    towers = results[0].towers
    assert len(set(towers.weight.numpy())) > 1
    assert abs(float(results[0].loss) - np.mean(towers.loss)) > 5e-6


def test_processes_are_joined_between_sum_and_division():
    """Two processes with half a batch each, the stand-in adds what the other one has."""
    tower_fn, model, batches, _ = fresh(dense_case)
    expected, losses = helpers.train_plainly(tower_fn, model, sgd(), batches[:1])

    inputs, labels = batches[0]
    tower_fn, model, _, _ = fresh(dense_case)
    with tf.GradientTape() as tape:
        loss, weight, _ = tower_fn((inputs[4:], labels[4:]))
    other = tape.gradient(loss, [v.value for v in model.trainable_variables])
    calls = []

    def add_other(total):
        own_loss, own_weight, metrics, own, *states = total
        calls.append(len(own))
        gradients = [a + b for a, b in zip(own, other, strict=True)]
        return own_loss + loss, own_weight + weight, metrics, gradients, *states

    actual, results = helpers.train_on_towers(
        tower_fn, model, sgd(), [(inputs[:4], labels[:4])], 2,
        processes=helpers.OneOfTwo(add_other),
    )  # fmt: skip
    helpers.assert_same_weights(actual, expected)
    np.testing.assert_allclose(float(results[0].loss), losses[0], rtol=1e-6)
    assert calls == [4]

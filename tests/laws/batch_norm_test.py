"""Law 6: BatchNorm statistics are updated once a step, by a stated policy, never N times."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests import helpers

MOMENTUM = 0.9


def normalised_model():
    inputs = keras.Input((5,))
    normed = keras.layers.BatchNormalization(momentum=MOMENTUM, name="norm")(inputs)
    return keras.Model(inputs, keras.layers.Dense(3, name="logits")(normed))


def expected_statistics(batches, num_towers, policy, accumulate=1):
    """Moving mean and variance in NumPy: each part's own update, averaged by the parts' sizes."""
    mean, variance = np.zeros(5), np.ones(5)
    for inputs, _ in batches:
        shards = [shard for shard in np.array_split(inputs, num_towers) if len(shard)]
        if policy == "first":
            shards = shards[:1]
        parts = [part for shard in shards for part in np.array_split(shard, accumulate)]
        parts = [part for part in parts if len(part)]
        sizes = [len(part) for part in parts]
        batch_mean = np.average([part.mean(axis=0) for part in parts], axis=0, weights=sizes)
        batch_variance = np.average([part.var(axis=0) for part in parts], axis=0, weights=sizes)
        mean = MOMENTUM * mean + (1 - MOMENTUM) * batch_mean
        variance = MOMENTUM * variance + (1 - MOMENTUM) * batch_variance
    return mean, variance


def train(batches, num_towers, **options):
    model = normalised_model()
    tower_fn = helpers.classify(model, training=True)
    helpers.train_on_towers(
        tower_fn, model, keras.optimizers.SGD(0.1), batches, num_towers, **options
    )
    norm = model.get_layer("norm")
    return norm.moving_mean.numpy(), norm.moving_variance.numpy()


def assert_statistics(actual, expected):
    for one, other in zip(actual, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("policy", ["first", "mean"])
def test_statistics_follow_the_policy_over_uneven_shards(policy):
    batches = helpers.dense_batches([8, 7, 5, 8])
    statistics = train(batches, 2, batch_norm=policy)
    assert_statistics(statistics, expected_statistics(batches, 2, policy))


def test_the_policies_differ():
    """The test of the test."""
    batches = helpers.dense_batches([8, 7, 5, 8])
    first, mean = (expected_statistics(batches, 2, policy) for policy in ("first", "mean"))
    assert np.abs(first[0] - mean[0]).max() > 0.01


@pytest.mark.parametrize("policy", [pytest.param("first", marks=pytest.mark.slow), "mean"])
def test_accumulated_micro_batches_count_as_one_step(policy):
    batches = helpers.dense_batches([8, 7, 5, 8])
    statistics = train(batches, 2, batch_norm=policy, accumulate=2)
    assert_statistics(statistics, expected_statistics(batches, 2, policy, accumulate=2))


@pytest.mark.parametrize("policy", [pytest.param("first", marks=pytest.mark.slow), "mean"])
def test_an_empty_shard_counts_nothing(policy):
    batches = helpers.dense_batches([2, 3, 1, 2])
    statistics = train(batches, 4, batch_norm=policy)
    assert_statistics(statistics, expected_statistics(batches, 4, policy))


def test_one_tower_updates_as_keras_does():
    batches = helpers.dense_batches([8, 7])
    statistics = train(batches, 1)
    keras.utils.set_random_seed(7)
    model = normalised_model()
    for inputs, _ in batches:
        model(inputs, training=True)
    norm = model.get_layer("norm")
    assert_statistics(statistics, (norm.moving_mean.numpy(), norm.moving_variance.numpy()))


@pytest.mark.parametrize("policy", [pytest.param("first", marks=pytest.mark.slow), "mean"])
def test_statistics_without_any_weight_stay(policy):
    """A batch of nothing but padding: 0 / 0 must not reach the moving averages."""
    model = normalised_model()

    def tower_fn(batch):
        loss, _, _ = helpers.classify(model, training=True)(batch)
        return loss * 0.0, tf.zeros([]), {}

    batches = helpers.dense_batches([4])
    optimizer = keras.optimizers.SGD(0.1)
    helpers.train_on_towers(tower_fn, model, optimizer, batches, 2, batch_norm=policy)
    norm = model.get_layer("norm")
    np.testing.assert_array_equal(norm.moving_mean.numpy(), np.zeros(5))
    np.testing.assert_array_equal(norm.moving_variance.numpy(), np.ones(5))


def test_unknown_policy_is_refused():
    with pytest.raises(ValueError, match=r"batch_norm must be one of first, mean\. Received 'all'"):
        train(helpers.dense_batches([4]), 2, batch_norm="all")

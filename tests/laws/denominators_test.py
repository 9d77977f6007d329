"""Losses with different denominators: the gradient is that of the sum of their means."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import towers
from tests.helpers import (
    assert_same_weights,
    build_step,
    dataset_of,
    dense_batches,
    dense_model,
    make_async_trainer,
    tower_placement,
    train_on_towers,
    weights_of,
)
from towers.devices.op_devices import record_op_devices

pytestmark = pytest.mark.usefixtures("float64")


def make_batches(sizes):
    """Batches (inputs, labels, mask) whose masks differ from row to row."""
    random = np.random.default_rng(3)
    batches = dense_batches(sizes, dtype="float64")
    return [(*batch, random.integers(0, 2, len(batch[0])).astype("float64")) for batch in batches]


def three_losses(model):
    """Masked cross-entropy, mean square of the logits, and a sum that is not divided."""

    def tower_fn(batch):
        inputs, labels, mask = batch
        logits = model(inputs)
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
        squares = tf.reduce_sum(logits**2, axis=-1)
        sums = (
            tf.reduce_sum(losses * mask),
            tf.reduce_sum(squares),
            0.01 * tf.reduce_sum(tf.abs(logits)),
        )
        rows = tf.cast(tf.shape(labels)[0], mask.dtype)
        metrics = {"square": (sums[1], rows), "columns": (tf.reduce_sum(logits, axis=0), None)}
        return sums, (tf.reduce_sum(mask), rows, None), metrics

    return tower_fn


def train_plainly(tower_fn, model, optimizer, batches):
    """A loop that divides each loss by its own denominator. Returns (weights, losses)."""
    values = []
    for batch in batches:
        with tf.GradientTape() as tape:
            losses, weights, _ = tower_fn(tuple(map(tf.constant, batch)))
            pairs = zip(losses, weights, strict=True)
            loss = sum(
                one if weight is None else tf.math.divide_no_nan(one, weight)
                for one, weight in pairs
            )
        variables = model.trainable_variables
        gradients = tape.gradient(loss, [variable.value for variable in variables])
        optimizer.apply(gradients, variables)
        values.append(float(loss))
    return weights_of(model), values


def trained(train, make_tower_fn=three_losses, sizes=(8, 7, 2)):
    """Trains a fresh model with a function of (tower_fn, model, optimizer, batches)."""
    keras.utils.set_random_seed(1)
    model = dense_model()
    return train(make_tower_fn(model), model, keras.optimizers.Adam(0.1), make_batches(sizes))


@pytest.mark.parametrize(
    ("num_towers", "options"),
    [
        pytest.param(1, {}, marks=pytest.mark.slow),
        pytest.param(3, {}, marks=pytest.mark.slow),
        (2, {"accumulate": 2}),
        pytest.param(2, {"accumulate": 2, "compiled": True}, marks=pytest.mark.slow),
        pytest.param(2, {"parameters": "replicated"}, marks=pytest.mark.slow),
        pytest.param(2, {"parameters": "nccl"}, marks=pytest.mark.slow),
    ],
)
def test_each_loss_is_divided_by_its_own_denominator(num_towers, options):
    expected, losses = trained(train_plainly)
    actual, results = trained(lambda *made: train_on_towers(*made, num_towers, **options))
    assert_same_weights(actual, expected, float64=True)
    np.testing.assert_allclose([float(one.loss) for one in results], losses, rtol=1e-12)
    towers_loss = results[0].towers
    mean = np.sum(towers_loss.loss * towers_loss.weight) / np.sum(towers_loss.weight)
    np.testing.assert_allclose(mean, losses[0], rtol=1e-12)


def test_a_denominator_may_follow_from_the_model():
    """It is a constant of the gradient, as a mask is."""

    def make(model):
        def tower_fn(batch):
            logits = model(batch[0])
            chosen = tf.stop_gradient(tf.cast(logits > 0, logits.dtype))
            rows = tf.cast(tf.shape(logits)[0], logits.dtype)
            losses = (tf.reduce_sum(logits**2 * chosen), tf.reduce_sum((logits - 1) ** 2))
            return losses, (tf.reduce_sum(chosen), rows), {}

        return tower_fn

    expected, _ = trained(train_plainly, make)
    actual, _ = trained(lambda *made: train_on_towers(*made, 2, accumulate=2), make)
    assert_same_weights(actual, expected, float64=True)


@pytest.mark.parametrize("number", [1, 2])
def test_a_weight_with_a_gradient_is_refused(number):
    def make(model):
        def tower_fn(batch):
            logits = model(batch[0])
            return tf.reduce_sum(logits**2), tf.reduce_sum(tf.sigmoid(logits)), {}

        return tower_fn

    with pytest.raises(ValueError, match=r"follows from the trainable variable '.*kernel'"):
        trained(lambda *made: train_on_towers(*made, number), make)


def test_a_loss_without_any_weight_in_a_batch_counts_zero():
    def make(model):
        def tower_fn(batch):
            losses, weights, metrics = three_losses(model)(batch)
            return losses, (weights[0] * 0, *weights[1:]), metrics

        return tower_fn

    expected, _ = trained(train_plainly, make)
    actual, _ = trained(lambda *made: train_on_towers(*made, 3), make)
    assert_same_weights(actual, expected, float64=True)


def test_a_sum_that_is_not_divided_has_any_shape_and_counts_each_row_once():
    _, one = trained(lambda *made: train_on_towers(*made, 1))
    _, three = trained(lambda *made: train_on_towers(*made, 3, accumulate=2))
    for alone, shared in zip(one, three, strict=True):
        assert alone.metrics["columns"].shape == (3,)
        np.testing.assert_allclose(alone.metrics["columns"], shared.metrics["columns"], rtol=1e-9)


def test_one_loss_with_a_weight_needs_no_denominators():
    """Its graph is that of a step which knows no others."""
    step, _ = build_step(
        lambda batch: (tf.reduce_sum(model(batch[0])), tf.cast(tf.size(batch[1]), "float64"), {}),
        model := dense_model(),
        keras.optimizers.SGD(),
        make_batches([4]),
        2,
    )
    assert not [op.name for op in step.graph.get_operations() if "denominators" in op.name]


def test_weights_from_the_batch_alone_need_no_second_forward_pass():
    def products(make_tower_fn):
        model = dense_model()
        with record_op_devices() as devices:
            train_on_towers(
                make_tower_fn(model), model, keras.optimizers.SGD(), make_batches([4]), 1
            )
        return sum(count for (op, _), count in devices.items() if op in ("MatMul", "_FusedMatMul"))

    def one_loss(model):
        def tower_fn(batch):
            losses, weights, metrics = three_losses(model)(batch)
            return sum(losses), weights[1], metrics

        return tower_fn

    assert products(three_losses) == products(one_loss) > 0


def test_an_asynchronous_tower_divides_by_the_denominators_of_its_batch():
    expected, _ = trained(train_plainly)

    def train(tower_fn, model, optimizer, batches):
        dataset = dataset_of(batches)
        step = towers.steps.build_async_step(
            tower_fn, model, optimizer, tower_placement(1), dataset
        )
        make_async_trainer(step, towers.batches_from(dataset)).train(epochs=1)
        return weights_of(model)

    assert_same_weights(trained(train), expected, float64=True)


def test_evaluation_divides_each_loss_by_its_denominator_over_the_data_set():
    model = dense_model()
    tower_fn, batches = three_losses(model), make_batches([8, 7, 1])
    whole = tuple(tf.constant(np.concatenate(part)) for part in zip(*batches, strict=True))
    losses, weights, metrics = tower_fn(whole)
    dataset = dataset_of(batches)
    step = towers.build_evaluation_step(tower_fn, model, tower_placement(2), dataset)
    means = towers.evaluate_step(step, dataset)
    expected = float(losses[0] / weights[0] + losses[1] / weights[1] + losses[2])
    assert means["loss"] == pytest.approx(expected, rel=1e-12)
    assert means["examples"] == 16
    np.testing.assert_allclose(means["columns"], metrics["columns"][0], rtol=1e-9)


def test_losses_and_weights_that_do_not_match_are_refused():
    with pytest.raises(ValueError, match="Received 2 losses and 1 weights"):
        trained(
            lambda *made: train_on_towers(*made, 1),
            lambda model: lambda batch: ((tf.reduce_sum(model(batch[0])), 0.0), (1.0,), {}),
        )


def test_numbers_of_python_are_exact_as_weights_and_metrics():
    def make_tower_fn(model):
        return lambda batch: (tf.reduce_sum(model(batch[0])), 0.3, {"third": (0.1, 0.3)})

    _, results = trained(lambda *made: train_on_towers(*made, 1), make_tower_fn)
    assert float(results[0].weight) == 0.3
    assert float(results[0].metrics["third"]) == 0.1 / 0.3

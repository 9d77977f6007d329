"""Every example counts exactly once in an evaluation, and rates are those of the steps read."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import towers
from tests import helpers
from tests.towers.loop.reports import report_of
from towers.loop.rates import Window


def evaluation(tower_fn, variables, dataset, num_towers):
    placement = helpers.tower_placement(num_towers)
    step = towers.build_evaluation_step(tower_fn, variables, placement, dataset)
    return towers.evaluate_step(step, dataset)


@pytest.mark.parametrize("num_towers", [1, 4])
def test_every_example_counts_once(num_towers):
    """17 examples in batches of 8: the last batch is one example, fewer than there are towers."""
    model = helpers.dense_model()
    ((inputs, labels),) = helpers.dense_batches([17])
    logits = model(inputs).numpy().astype("float64")
    losses = np.log(np.exp(logits).sum(-1)) - logits[np.arange(17), labels]
    dataset = tf.data.Dataset.from_tensor_slices((inputs, labels)).batch(8)
    means = evaluation(helpers.classify(model), model, dataset, num_towers)
    assert means["examples"] == 17
    np.testing.assert_allclose(means["loss"], losses.mean(), rtol=1e-6)
    np.testing.assert_allclose(means["accuracy"], np.mean(logits.argmax(-1) == labels))


def test_a_metric_may_bring_its_own_weight():
    """Tokens weigh the loss, sequences a metric of whole sequences."""
    model = helpers.dense_model()

    def tower_fn(batch):
        inputs, labels = batch
        loss = 0.0 * tf.reduce_sum(model(inputs))
        pair = (tf.reduce_sum(labels), 2.0 * tf.cast(tf.size(labels), tf.float32))
        return loss, 10 * tf.size(labels), {"sum": tf.reduce_sum(labels), "pair": pair}

    ((inputs, labels),) = helpers.dense_batches([7])
    dataset = tf.data.Dataset.from_tensor_slices((inputs, labels)).batch(3)
    means = evaluation(tower_fn, model, dataset, 2)
    assert means["examples"] == 70
    np.testing.assert_allclose(means["sum"], labels.sum() / 70)
    np.testing.assert_allclose(means["pair"], labels.sum() / 14)


def test_a_metric_of_nothing_is_zero_as_in_training():
    model = helpers.dense_model()

    def tower_fn(batch):
        return 0.0 * tf.reduce_sum(model(batch[0])), tf.size(batch[1]), {"none": (0.0, 0.0)}

    batches = helpers.dense_batches([4])
    assert evaluation(tower_fn, model, helpers.dataset_of(batches), 2)["none"] == 0
    step, shards = helpers.build_step(tower_fn, model, keras.optimizers.SGD(0.1), batches, 2)
    assert float(step(shards[0], 1).metrics["none"]) == 0


def test_evaluation_changes_no_variable():
    inputs = keras.Input((5,))
    normed = keras.layers.BatchNormalization()(keras.layers.Dropout(0.5)(inputs))
    model = keras.Model(inputs, keras.layers.Dense(3)(normed))
    before = [variable.numpy() for variable in model.variables]
    dataset = helpers.dataset_of(helpers.dense_batches([4]))
    evaluation(helpers.classify(model, training=True), model, dataset, 2)
    for old, variable in zip(before, model.variables, strict=True):
        np.testing.assert_array_equal(old, variable.numpy())


def test_sums_are_kept_in_float64():
    """In float32 the small batches would vanish beside the large one."""
    losses = [2.0**24] + [1.0] * 8
    dataset = tf.data.Dataset.from_tensor_slices(losses).batch(1)
    means = evaluation(sum_of_rows, [keras.Variable(0.0)], dataset, 1)
    assert means["loss"] == (2.0**24 + 8) / 9


def test_nothing_to_evaluate_is_an_error():
    dataset = tf.data.Dataset.from_tensor_slices([1.0]).batch(1).take(0)
    with pytest.raises(ValueError, match="nothing to evaluate: the data set has no examples"):
        evaluation(sum_of_rows, [keras.Variable(0.0)], dataset, 1)


def sum_of_rows(batch):
    return tf.reduce_sum(batch), tf.size(batch), {}


def test_rates_are_per_second():
    """Each of three steps takes half a second, in which the second tower waits for the half."""
    rates = rates_after(3)
    assert rates.steps_per_second == 2.0
    assert rates.tower_examples_per_second.tolist() == [4.0, 6.0]
    assert rates.examples_per_second == 10.0
    assert rates.tower_input_wait.tolist() == [0.0, 0.5]
    assert rates.input_wait == 0.5


def test_the_rate_of_all_counts_the_towers_of_other_processes():
    rates = rates_after(3, weight=tf.constant(20.0))
    assert rates.tower_examples_per_second.tolist() == [4.0, 6.0]
    assert rates.examples_per_second == 40.0


def rates_after(steps, **changes):
    window = Window()
    for step in range(steps):
        window.add(report_of(step + 1, **changes))
    return window.read()[1]

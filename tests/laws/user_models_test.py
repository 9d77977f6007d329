"""A Keras model that a user brings trains through the same contracts in about ten lines."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import towers
from tests import helpers

NUM_STEPS = 3


def train_by_trainer(make_tower_fn, make_model, batches, num_towers=2):
    """What a user writes: a model, a tower function, a step, a trainer."""
    keras.utils.set_random_seed(3)
    dataset = helpers.dataset_of(batches)
    placement = helpers.tower_placement(num_towers)
    with placement.scope():
        model = make_model()
    optimizer = keras.optimizers.SGD(0.1, momentum=0.9)
    options = towers.StepOptions(probe=False)
    step = towers.build_train_step(
        make_tower_fn(model), model, optimizer, placement, dataset, options
    )
    reports = []
    helpers.make_trainer(step, towers.batches_from(dataset), [reports.append]).train(epochs=1)
    return helpers.weights_of(model), [float(report.results.loss) for report in reports]


def assert_trains_as_a_plain_loop(make_tower_fn, make_model, batches):
    actual, losses = train_by_trainer(make_tower_fn, make_model, batches)
    keras.utils.set_random_seed(3)
    model = make_model()
    tower_fn = make_tower_fn(model)
    if not model.built:
        tower_fn(batches[0])
    expected, expected_losses = helpers.train_plainly(
        tower_fn, model, keras.optimizers.SGD(0.1, momentum=0.9), batches
    )
    helpers.assert_same_weights(actual, expected)
    np.testing.assert_allclose(losses, expected_losses, rtol=1e-5)


def test_a_functional_model_trains_as_in_a_plain_loop():
    batches = helpers.dense_batches([8, 7, 1])
    assert_trains_as_a_plain_loop(helpers.classify, helpers.dense_model, batches)


class Subclassed(keras.Model):
    """Its layers learn their input's size from the first batch."""

    def __init__(self):
        super().__init__()
        self.hidden = [keras.layers.Dense(6, activation="relu") for _ in range(2)]
        self.logits = keras.layers.Dense(3)

    def call(self, inputs, training=False):
        for layer in self.hidden:
            inputs = layer(inputs)
        return self.logits(inputs)


def test_a_subclassed_model_that_is_not_yet_built_trains_as_in_a_plain_loop():
    batches = helpers.dense_batches([8, 7, 1])
    assert_trains_as_a_plain_loop(helpers.classify, Subclassed, batches)


def normalised_model():
    inputs = keras.Input((5,))
    hidden = keras.layers.Dense(
        6, kernel_regularizer="l2", bias_regularizer="l1", activity_regularizer="l2"
    )(inputs)
    hidden = keras.layers.BatchNormalization(gamma_regularizer="l2")(hidden)
    return keras.Model(inputs, keras.layers.Dense(3, kernel_regularizer="l1")(hidden))


def weight_penalties(model):
    """A classifier with all regularisers of the weights, BatchNorm in inference mode."""

    def tower_fn(batch):
        inputs, labels = batch
        logits = model(inputs, training=False)
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
        weight = tf.cast(tf.size(labels), losses.dtype)
        penalties = [
            variable.regularizer(variable)
            for variable in model.trainable_variables
            if variable.regularizer
        ]
        return tf.reduce_sum(losses) + weight * sum(penalties), weight, {}

    return tower_fn


def test_batch_norm_and_regularisers_train_as_in_a_plain_loop():
    batches = helpers.dense_batches([8, 7, 1])
    assert_trains_as_a_plain_loop(weight_penalties, normalised_model, batches)


def test_the_losses_of_a_model_enter_as_they_are():
    """`sum(model.losses)` holds the regularisers of weights and of activities."""
    (batch,) = batches = helpers.dense_batches([8])
    model = normalised_model()
    loss_sum, weight, _ = helpers.classify(model)(batch)
    assert len(model.losses) == 5
    dataset, placement = helpers.dataset_of(batches), helpers.tower_placement(1)
    step = towers.build_evaluation_step(helpers.classify(model), model, placement, dataset)
    means = towers.evaluate_step(step, dataset)
    np.testing.assert_allclose(means["loss"], loss_sum / weight, rtol=1e-6)


def two_headed_model():
    words, length = keras.Input((4,), name="words"), keras.Input((1,), name="length")
    hidden = keras.layers.Dense(6, activation="tanh")(keras.layers.Concatenate()([words, length]))
    outputs = {
        "label": keras.layers.Dense(3, name="label")(hidden),
        "score": keras.layers.Dense(1, name="score")(hidden),
    }
    return keras.Model({"words": words, "length": length}, outputs)


def two_losses(model):
    def tower_fn(batch):
        outputs = model({"words": batch["words"], "length": batch["length"]})
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(batch["label"], outputs["label"])
        errors = tf.square(outputs["score"][:, 0] - batch["score"])
        weight = tf.cast(tf.size(batch["label"]), tf.float32)
        return tf.reduce_sum(losses + errors), weight, {"squared_error": tf.reduce_sum(errors)}

    return tower_fn


def test_dict_inputs_and_two_outputs_train_as_in_a_plain_loop():
    batches = [
        {
            "words": inputs[:, :4],
            "length": inputs[:, 4:],
            "label": labels,
            "score": inputs[:, 0] - inputs[:, 1],
        }
        for inputs, labels in helpers.dense_batches([8, 7, 1])
    ]
    assert_trains_as_a_plain_loop(two_losses, two_headed_model, batches)


@pytest.mark.slow
def test_a_keras_application_trains_as_in_a_plain_loop():
    random = np.random.default_rng(0)
    images = random.normal(size=(3, 32, 32, 3)).astype("float32")
    batches = [(images, np.array([0, 1, 1], "int32"))]

    def resnet():
        return keras.applications.ResNet50(
            weights=None, classes=2, input_shape=(32, 32, 3), classifier_activation=None
        )

    assert_trains_as_a_plain_loop(helpers.classify, resnet, batches)

"""The classification loss is a sum over examples that NumPy can check."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from towers.models.losses import classification, cross_entropy

NUM_CLASSES = 4


def as_logits(images, training=False):
    """A model whose logits are its input."""
    return images


as_logits.losses = []


def batch(size=6, dtype="float32"):
    random = np.random.default_rng(0)
    logits = random.normal(size=(size, NUM_CLASSES)).astype(dtype) * 3
    return logits, random.integers(0, NUM_CLASSES, size).astype("int32")


def numpy_losses(logits, labels, label_smoothing=0.0):
    targets = np.eye(NUM_CLASSES)[labels] * (1 - label_smoothing) + label_smoothing / NUM_CLASSES
    logits = logits.astype("float64")
    return -np.sum(targets * (logits - np.log(np.exp(logits).sum(-1, keepdims=True))), -1)


def regularised_model():
    inputs = keras.Input((3,))
    outputs = keras.layers.Dense(NUM_CLASSES, kernel_regularizer=keras.regularizers.L2(0.1))
    return keras.Model(inputs, outputs(inputs))


@pytest.mark.parametrize("label_smoothing", [0.0, 0.1])
@pytest.mark.parametrize("training", [False, True])
def test_loss_is_the_sum_of_cross_entropies(label_smoothing, training):
    logits, labels = batch()
    tower_fn = classification(as_logits, training=training, label_smoothing=label_smoothing)
    loss_sum, weight, metrics = tower_fn((tf.constant(logits), tf.constant(labels)))
    expected = numpy_losses(logits, labels, label_smoothing).sum()
    np.testing.assert_allclose(loss_sum, expected, rtol=1e-6)
    assert weight == 6 and weight.dtype == loss_sum.dtype == tf.float32
    assert metrics["accuracy"] == np.sum(logits.argmax(-1) == labels)


def test_label_smoothing_works_for_sequences_too():
    logits = np.random.default_rng(1).normal(size=(2, 3, NUM_CLASSES))
    labels = np.array([[0, 1, 2], [3, 0, 1]])
    np.testing.assert_allclose(
        cross_entropy(tf.constant(logits), tf.constant(labels), label_smoothing=0.2),
        numpy_losses(logits, labels, 0.2),
        rtol=1e-12,
    )


def test_sample_weights_weigh_loss_weight_and_metrics():
    logits, labels = batch()
    sample_weights = np.array([1, 0.5, 0, 2, 0.25, 1], "float64")
    tower_fn = classification(as_logits, training=False)
    loss_sum, weight, metrics = tower_fn((logits, labels, sample_weights))
    expected = np.sum(numpy_losses(logits, labels) * sample_weights)
    np.testing.assert_allclose(loss_sum, expected, rtol=1e-6)
    assert weight == 4.75
    assert metrics["accuracy"] == np.sum((logits.argmax(-1) == labels) * sample_weights)


def test_examples_of_weight_zero_contribute_nothing():
    model = regularised_model()
    images = np.random.default_rng(2).normal(size=(5, 3)).astype("float32")
    labels = np.array([0, 1, 2, 3, 0], "int32")
    tower_fn = classification(model, training=True)
    results, gradients = [], []
    mask = tf.constant([True, True, True, False, False])
    for shard in ((images, labels, mask), (images[:3], labels[:3])):
        with tf.GradientTape() as tape:
            results.append(tower_fn(shard))
        gradients.append(tape.gradient(results[-1][0], model.trainable_variables))
    for masked, short in zip(
        tf.nest.flatten((results[0], gradients[0])),
        tf.nest.flatten((results[1], gradients[1])),
        strict=True,
    ):
        np.testing.assert_allclose(masked, short, rtol=1e-6, atol=1e-7)


def test_regulariser_enters_as_weight_times_sum_in_training_only():
    model = regularised_model()
    shard = (tf.ones([5, 3]), tf.zeros([5], tf.int32))
    plain = classification(model, training=False)(shard)[0]
    regularised = classification(model, training=True)(shard)[0]
    penalty = 0.1 * np.sum(np.square(model.trainable_variables[0].numpy()))
    np.testing.assert_allclose(regularised - plain, 5 * penalty, rtol=1e-5)


@pytest.mark.parametrize(
    ("policy", "dtype"),
    [
        ("mixed_float16", "float32"),
        ("mixed_bfloat16", "float32"),
        ("bfloat16", "float32"),
        ("float64", "float64"),
    ],
)
def test_loss_has_at_least_the_precision_of_float32(policy, dtype):
    keras.config.set_dtype_policy(policy)
    model = regularised_model()
    shard = (tf.ones([5, 3]), tf.zeros([5], tf.uint8))
    loss_sum, weight, metrics = classification(model, training=True)(shard)
    assert loss_sum.dtype == weight.dtype == metrics["accuracy"].dtype == dtype


def test_shapes_that_would_broadcast_are_refused():
    logits, labels = batch()
    tower_fn = classification(as_logits, training=False)
    with pytest.raises(ValueError, match=r"labels \[batch\].*\(6, 1\).*drop extra dimensions"):
        tower_fn((logits, labels[:, None]))
    with pytest.raises(ValueError, match=r"sample_weights must be \[batch\].*\(6, 1\)"):
        tower_fn((logits, labels, np.ones([6, 1])))


def test_label_smoothing_out_of_range_is_refused():
    with pytest.raises(ValueError, match=r"label_smoothing must be in \[0, 1\). Received 1.5"):
        classification(as_logits, training=True, label_smoothing=1.5)

"""Losses for rows of labels against NumPy, summed over the shard."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from towers.models import losses

LOGITS = np.array([[2.0, -1.0, 0.5], [0.1, 0.2, -3.0]], "float32")


def given_logits():
    """Returns a model that returns its input."""
    inputs = keras.Input([3])
    return keras.Model(inputs, keras.layers.Identity()(inputs))


def softmax(logits):
    return np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)


def test_shares_of_classes():
    labels = np.array([[0.7, 0.0, 0.3], [1.0, 0.0, 0.0]], "float32")
    tower_fn = losses.soft_classification(given_logits(), training=True, label_smoothing=0.1)
    loss, weight, metrics = tower_fn((LOGITS, tf.constant(labels)))
    targets = 0.9 * labels + 0.1 / 3
    np.testing.assert_allclose(loss, -(targets * np.log(softmax(LOGITS))).sum(), rtol=1e-5)
    assert (weight, metrics["accuracy"]) == (2, 1)


def test_whole_shares_are_classes():
    expected = losses.classification(given_logits(), training=False)((LOGITS, tf.constant([2, 1])))
    tower_fn = losses.soft_classification(given_logits(), training=False)
    actual = tower_fn((LOGITS, tf.one_hot([2, 1], 3)))
    np.testing.assert_allclose(actual[0], expected[0], rtol=1e-6)
    assert float(actual[2]["accuracy"]) == float(expected[2]["accuracy"])


def test_several_labels():
    labels = np.array([[1, 0, 1], [0, 0, 0]], "float32")
    tower_fn = losses.several_labels(given_logits(), training=False)
    loss, weight, metrics = tower_fn((LOGITS, tf.constant(labels)))
    yes = 1 / (1 + np.exp(-LOGITS))
    expected = -(labels * np.log(yes) + (1 - labels) * np.log(1 - yes)).sum()
    np.testing.assert_allclose(loss, expected, rtol=1e-5)
    assert weight == 2 and float(metrics["accuracy"]) == pytest.approx(1 + 1 / 3)


def test_labels_of_another_shape_are_refused():
    tower_fn = losses.several_labels(given_logits(), training=False)
    with pytest.raises(ValueError, match=r"labels must be \[batch, num_classes\].*shape \(2,\)"):
        tower_fn((LOGITS, tf.constant([0, 1])))

"""Views of an image: means in an evaluation."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from towers.models.views import VIEWS, over_views

IMAGES = np.random.default_rng(0).normal(size=[2, 4, 4, 1]).astype("float32")


def make_network(**options):
    keras.utils.set_random_seed(0)
    flat = [keras.Input([4, 4, 1]), keras.layers.Flatten(**options)]
    return keras.Sequential([*flat, keras.layers.Dense(3, "tanh", **options)])


def test_logits_are_means_over_the_views():
    network = make_network()
    flips = (network(IMAGES) + network(IMAGES[:, :, ::-1])) / 2
    np.testing.assert_allclose(over_views(network, "flips")(IMAGES), flips, atol=1e-6)
    padded = np.pad(IMAGES, [(0, 0), (1, 1), (1, 1), (0, 0)], mode="reflect")
    shifted = [padded[:, 2:, 2:], padded[:, :-2, :-2]]
    moved = sum(network(one) + network(one[:, :, ::-1]) for one in shifted) / 4
    result = over_views(network, "shifts")(IMAGES, training=False)
    np.testing.assert_allclose(result, flips / 2 + moved / 2, atol=1e-6)
    assert over_views(network, "none") is network


@pytest.mark.parametrize("views", VIEWS)
def test_no_images_have_no_logits(views):
    function = over_views(make_network(), views)
    assert function(tf.constant(IMAGES[:0]), training=False).shape == (0, 3)


def test_logits_in_half_precision_are_averaged_in_float32():
    network = make_network(dtype="bfloat16")
    assert network(IMAGES).dtype == tf.bfloat16
    assert over_views(network, "flips")(tf.constant(IMAGES)).dtype == tf.float32


def test_unknown_views_are_refused():
    with pytest.raises(ValueError, match=r"test_views must be one of none, flips, shifts"):
        over_views(make_network(), "flip")

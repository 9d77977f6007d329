"""The convolutional networks are those of their papers."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.models.image_models import check_logits, check_one_step_lowers_the_loss, count
from towers.models.cnn import LocalResponseNormalization, cifar_cnn, lenet


def test_lenet_has_the_parameters_of_20_50_500():
    model = lenet((28, 28, 1), 10, dropout_rate=0.5)
    check_logits(model, 10)
    convolutions = (25 * 1 * 20 + 20) + (25 * 20 * 50 + 50)
    dense = (4 * 4 * 50 * 500 + 500) + (500 * 10 + 10)
    assert count(model.trainable_variables) == convolutions + dense == 431_080


@pytest.mark.parametrize("response_normalization", [True, False])
def test_cifar_cnn_has_the_parameters_of_the_tutorial(response_normalization):
    model = cifar_cnn((24, 24, 3), 10, response_normalization=response_normalization)
    check_logits(model, 10)
    convolutions = (25 * 3 * 64 + 64) + (25 * 64 * 64 + 64)
    dense = (6 * 6 * 64 * 384 + 384) + (384 * 192 + 192) + (192 * 10 + 10)
    assert count(model.variables) == convolutions + dense == 1_068_298


def test_cifar_cnn_has_the_layers_of_the_tutorial():
    assert [layer.name for layer in cifar_cnn((24, 24, 3), 10).layers] == [
        "images",
        "conv1",
        "pool1",
        "norm1",
        "conv2",
        "norm2",
        "pool2",
        "flatten",
        "local3",
        "local4",
        "logits",
    ]


def test_cifar_cnn_starts_from_the_values_of_the_tutorial():
    model = cifar_cnn((24, 24, 3), 10)
    # A normal distribution cut off at two standard deviations has 0.8796 of its deviation.
    deviations = {"conv1": 5e-2, "conv2": 5e-2, "local3": 0.04, "local4": 0.04, "logits": 1 / 192}
    for name, deviation in deviations.items():
        kernel = model.get_layer(name).kernel.numpy()
        np.testing.assert_allclose(kernel.std(), 0.8796 * deviation, rtol=0.05)
        assert np.abs(kernel).max() <= 2.0001 * deviation
    biases = {"conv1": 0.0, "conv2": 0.1, "local3": 0.1, "local4": 0.1, "logits": 0.0}
    for name, bias in biases.items():
        np.testing.assert_array_equal(model.get_layer(name).bias.numpy(), np.float32(bias))


def test_weight_decay_is_that_of_the_two_hidden_dense_layers():
    model = cifar_cnn((8, 8, 3), 10)
    kernels = [model.get_layer(name).kernel.numpy() for name in ("local3", "local4")]
    expected = [0.004 * np.sum(np.square(kernel)) / 2 for kernel in kernels]
    np.testing.assert_allclose(model.losses, expected, rtol=1e-5)
    assert not cifar_cnn((8, 8, 3), 10, weight_decay=0.0).losses


def test_response_normalization_equals_tensorflows():
    x = np.random.default_rng(0).normal(size=(2, 3, 3, 16)).astype("float32") * 20
    layer = LocalResponseNormalization(radius=2, bias=1.5, alpha=0.01)
    expected = tf.nn.local_response_normalization(x, 2, 1.5, 0.01, 0.75)
    np.testing.assert_allclose(layer(x), expected, rtol=1e-5)


def test_response_normalization_works_in_every_precision():
    x = np.random.default_rng(0).normal(size=(2, 3, 3, 16)) * 20
    expected = LocalResponseNormalization(dtype="float64")(x)
    for dtype, tolerance in {"float32": 1e-6, "float16": 1e-3, "bfloat16": 1e-2}.items():
        found = LocalResponseNormalization(dtype=dtype)(tf.cast(x, dtype))
        assert found.dtype == dtype
        np.testing.assert_allclose(tf.cast(found, "float64"), expected, rtol=tolerance)


# Keras 3.15 copies its variables in a way that NumPy 2 deprecates.
@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")
def test_cifar_cnn_can_be_saved_and_loaded(tmp_path):
    model = cifar_cnn((8, 8, 3), 10)
    model.save(tmp_path / "model.keras")
    images = tf.random.normal([2, 8, 8, 3])
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(loaded(images), model(images))


@pytest.mark.parametrize("make_model", [lenet, cifar_cnn])
def test_one_step_lowers_the_loss(make_model):
    check_one_step_lowers_the_loss(make_model, (16, 16, 3))


@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16", "float64"])
@pytest.mark.parametrize("make_model", [lenet, cifar_cnn])
def test_logits_have_the_dtype_of_the_policy(make_model, policy):
    keras.config.set_dtype_policy(policy)
    check_logits(make_model((16, 16, 1), 3), 3, dtype=policy.removeprefix("mixed_"))


def test_images_too_small_for_lenet_are_refused():
    with pytest.raises(ValueError, match=r"at least 16 x 16 for this model.*pad the images"):
        lenet((15, 28, 1), 10)


def test_wrong_arguments_are_refused():
    with pytest.raises(ValueError, match=r"weight_decay must not be negative. Received -1"):
        cifar_cnn((24, 24, 3), 10, weight_decay=-1.0)
    with pytest.raises(ValueError, match=r"second_filters must be .* at least 1. Received 0"):
        lenet((28, 28, 1), 10, filters=(20, 0))
    with pytest.raises(ValueError, match=r"filters must be two numbers.*Received \(20,\)"):
        lenet((28, 28, 1), 10, filters=(20,))

"""Networks of keras.applications with a head of their own and given weights."""

import keras
import numpy as np
import pytest

from tests.models.image_models import check_logits
from towers.models.applications import application, application_names

SHAPE = (32, 32, 3)

# Keras converts its variables in a way that NumPy deprecates.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")


def test_names_are_those_of_keras():
    names = application_names()
    assert {"ResNet50", "MobileNetV3Small", "EfficientNetB0", "VGG16", "ConvNeXtTiny"} <= set(names)
    with pytest.raises(ValueError, match=r"no network 'resnet50'. Did you mean 'ResNet50'"):
        application("resnet50", SHAPE, 3)


def test_images_of_one_channel_are_refused():
    with pytest.raises(ValueError, match=r"3 channels. Received input_shape=\(64, 64, 1\); repeat"):
        application("ResNet50", (64, 64, 1), 3)


def test_body_is_loaded_head_is_new_and_frozen_body_stays(tmp_path):
    body = keras.applications.MobileNet(
        include_top=False, weights=None, input_shape=SHAPE, pooling="avg"
    )
    body.save_weights(tmp_path / "body.weights.h5")
    model = application(
        "MobileNet", SHAPE, 3, weights=tmp_path / "body.weights.h5", frozen=True, dropout_rate=0.5
    )
    check_logits(model, 3)
    assert [one.shape for one in model.trainable_variables] == [(1024, 3), (3,)]
    pixels = np.random.default_rng(0).uniform(0, 255, (2, *SHAPE)).astype("float32")
    features = body(keras.applications.mobilenet.preprocess_input(pixels.copy()))
    kernel, bias = model.trainable_variables
    np.testing.assert_allclose(model(pixels), features @ kernel + bias, atol=1e-4)


def test_in_mixed_precision_every_variable_stays_in_float32():
    keras.config.set_dtype_policy("mixed_bfloat16")
    model = application("MobileNet", SHAPE, 3)
    assert {one.dtype for one in model.variables} == {"float32"}


def test_files_of_other_networks_are_refused(tmp_path):
    other = keras.Sequential([keras.Input([2]), keras.layers.Dense(2)])
    other.save_weights(tmp_path / "other.weights.h5")
    (tmp_path / "text.h5").write_text("x")
    for name in ("other.weights.h5", "text.h5"):
        with pytest.raises(ValueError, match=rf"{name} does not hold the weights .*_notop.h5"):
            application("MobileNet", SHAPE, 3, weights=tmp_path / name)
    with pytest.raises(FileNotFoundError, match=r"no.h5"):
        application("MobileNet", SHAPE, 3, weights=tmp_path / "no.h5")


@pytest.mark.slow
@pytest.mark.parametrize("name", application_names())
def test_every_network_maps_pixels_to_logits(name):
    """96 pixels are enough for all of them."""
    check_logits(application(name, (96, 96, 3), 4), 4)
    keras.backend.clear_session()


def test_the_preparation_is_made_again_from_its_config():
    pixels = np.random.default_rng(0).uniform(0, 255, (2, *SHAPE)).astype("float32")
    model = application("MobileNet", SHAPE, 3)
    again = keras.Model.from_config(model.get_config())
    again.set_weights(model.get_weights())
    np.testing.assert_array_equal(again(pixels), model(pixels))

"""The residual network is that of He et al. 2015, section 4.2."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.models.image_models import check_logits, check_one_step_lowers_the_loss, count
from towers.models.resnet import cifar_resnet, identity_shortcut


def test_depth_20_has_the_parameters_of_the_paper():
    model = cifar_resnet((32, 32, 3), 10)
    check_logits(model, 10)
    kernels = 9 * (3 * 16 + 6 * 16 * 16 + 16 * 32 + 5 * 32 * 32 + 32 * 64 + 5 * 64 * 64)
    normalized_channels = 7 * 16 + 6 * 32 + 6 * 64
    trainable = kernels + 2 * normalized_channels + (64 * 10 + 10)
    assert count(model.trainable_variables) == trainable == 269_722  # 0.27 million in table 6.
    assert count(model.non_trainable_variables) == 2 * normalized_channels == 1376


def test_depth_counts_convolutions_and_the_dense_layer():
    for depth in (8, 32):
        model = cifar_resnet((32, 32, 3), 10, depth=depth)
        kinds = (keras.layers.Conv2D, keras.layers.Dense)
        assert sum(isinstance(layer, kinds) for layer in model.layers) == depth


def test_projection_adds_two_small_convolutions():
    plain = cifar_resnet((32, 32, 3), 10, depth=8)
    projected = cifar_resnet((32, 32, 3), 10, depth=8, shortcut="projection")
    check_logits(projected, 10)
    added = count(projected.trainable_variables) - count(plain.trainable_variables)
    assert added == (16 * 32 + 2 * 32) + (32 * 64 + 2 * 64)


def test_identity_shortcut_keeps_every_other_pixel_and_adds_zeros():
    x = np.arange(1 * 5 * 4 * 2, dtype="float32").reshape(1, 5, 4, 2)
    shortcut = identity_shortcut(x, 5, 2, name="shortcut").numpy()
    assert shortcut.shape == (1, 3, 2, 5)
    np.testing.assert_array_equal(shortcut[..., :2], x[:, ::2, ::2])
    assert not shortcut[..., 2:].any()


def test_weight_decay_is_half_the_squares_of_every_kernel():
    model = cifar_resnet((8, 8, 3), 10, depth=8, weight_decay=0.01)
    kernels = [v.numpy() for v in model.trainable_variables if v.name == "kernel"]
    assert len(kernels) == 8
    expected = 0.01 / 2 * sum(np.sum(np.square(kernel)) for kernel in kernels)
    np.testing.assert_allclose(tf.add_n(model.losses), expected, rtol=1e-5)


def test_moving_averages_keep_the_given_share():
    model = cifar_resnet((8, 8, 3), 10, depth=8, batch_norm_momentum=0.75)
    model(tf.ones([2, 8, 8, 3]), training=True)
    moving_variance = model.get_layer("stage1_block1_conv1_norm").moving_variance.numpy()
    assert (moving_variance >= 0.75).all() and (moving_variance != 1).all()


def test_layer_names_are_stable_and_tell_stage_and_block():
    names = [
        [layer.name for layer in cifar_resnet((8, 8, 3), 10, depth=14).layers] for _ in range(2)
    ]
    assert names[0] == names[1]
    assert {"stage1_block1_conv1", "stage3_block2_relu", "stage2_block1_shortcut"} < set(names[0])


# Keras 3.15 copies its variables in a way that NumPy 2 deprecates.
@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")
def test_resnet_can_be_saved_and_loaded(tmp_path):
    model = cifar_resnet((8, 8, 3), 10, depth=8)
    model.save(tmp_path / "model.keras")
    images = tf.random.normal([2, 8, 8, 3])
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(loaded(images), model(images))


def test_one_step_lowers_the_loss():
    check_one_step_lowers_the_loss(lambda *sizes: cifar_resnet(*sizes, depth=8), (8, 8, 3))


@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16", "float64"])
def test_logits_have_the_dtype_of_the_policy(policy):
    keras.config.set_dtype_policy(policy)
    model = cifar_resnet((8, 8, 1), 3, depth=8)
    check_logits(model, 3, dtype=policy.removeprefix("mixed_"))


@pytest.mark.parametrize(
    ("depth", "message"),
    [
        (21, "Received 21; the nearest is 20 or 26"),
        (2, "Received 2; the nearest is 8"),
        (5, "Received 5; the nearest is 8"),
    ],
)
def test_impossible_depth_names_the_nearest(depth, message):
    with pytest.raises(ValueError, match=message):
        cifar_resnet((8, 8, 3), 10, depth=depth)


def test_unknown_shortcut_is_refused():
    with pytest.raises(ValueError, match=r"identity, projection. Received 'none'"):
        cifar_resnet((8, 8, 3), 10, shortcut="none")

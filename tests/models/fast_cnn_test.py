"""The network of arXiv:2404.00498: white patches, filters that pass on, biases with a rate."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.helpers import train_on_towers
from tests.models.image_models import check_logits, count
from towers.models.fast_cnn import Bias, Dirac, fast_cnn, whiten
from towers.models.losses import classification
from towers.optimizers import build_optimizer


def test_the_network_has_the_parameters_of_the_paper():
    model = fast_cnn((32, 32, 3), 10)
    check_logits(model, 10)
    kernels = 9 * (24 * 64 + 64 * 64 + 64 * 256 + 3 * 256 * 256)
    biases = 24 + 2 * 64 + 4 * 256
    assert count(model.trainable_variables) == kernels + biases + 256 * 10
    assert count(model.non_trainable_variables) == 2 * 2 * 3 * 24 + 2 * (2 * 64 + 4 * 256)


def test_a_third_convolution_adds_what_entered_the_second():
    """The variant for 96 %."""
    model = fast_cnn((32, 32, 3), 10, widths=(8, 16, 16), depth=3)
    check_logits(model, 10)
    kernels = 9 * (24 * 8 + 2 * 8 * 8 + 8 * 16 + 2 * 16 * 16 + 3 * 16 * 16)
    assert count(model.trainable_variables) == kernels + 24 + 3 * (8 + 16 + 16) + 16 * 10
    for block, width in enumerate((8, 16, 16), start=1):
        names = [f"block{block}_conv1_gelu", f"block{block}_conv3_bias", f"block{block}_conv3_gelu"]
        parts = keras.Model(model.input, [model.get_layer(name).output for name in names])
        entered, last, output = parts(np.random.default_rng(0).normal(size=[2, 32, 32, 3]))
        assert output.shape[-1] == width
        np.testing.assert_allclose(output, keras.activations.gelu(entered + last), rtol=1e-5)


@pytest.mark.parametrize("depth", [1, 4])
def test_a_depth_that_the_paper_does_not_have_is_refused(depth):
    with pytest.raises(ValueError, match=f"must be 2 or 3. Received {depth}"):
        fast_cnn((32, 32, 3), 10, depth=depth)


def test_whitened_patches_have_the_identity_as_second_moments():
    images = np.random.default_rng(0).normal(size=[40, 12, 11, 3]).cumsum(1).cumsum(2)
    layer = keras.layers.Conv2D(24, 2, use_bias=False)
    layer.build([None, 12, 11, 3])
    whiten(layer, [images[:25].astype("float32"), images[25:].astype("float32")])
    outputs = np.reshape(layer(images), [-1, 24]).astype("float64")
    # 5e-4 is added to each variance.
    np.testing.assert_allclose(
        outputs.T[:12] @ outputs[:, :12] / len(outputs), np.eye(12), atol=6e-3
    )
    np.testing.assert_array_equal(outputs[:, 12:], -outputs[:, :12])
    variances = 1 / np.square(layer.kernel.numpy()[..., :12]).sum((0, 1, 2))
    assert (np.diff(variances) < 0).all()


def test_whitening_without_images_is_refused():
    layer = keras.layers.Conv2D(24, 2, use_bias=False)
    layer.build([None, 12, 11, 3])
    with pytest.raises(ValueError, match=r"at least 2 x 2 pixels\. Received 0 images"):
        whiten(layer, [])


@pytest.mark.parametrize("filters", [2, 3, 7])
def test_dirac_passes_the_inputs_on(filters):
    keras.utils.set_random_seed(0)
    layer = keras.layers.Conv2D(filters, 3, padding="same", kernel_initializer=Dirac())
    images = np.random.default_rng(0).normal(size=[2, 5, 5, 3]).astype("float32")
    outputs = layer(images).numpy()
    np.testing.assert_array_equal(outputs[..., :3], images[..., :filters])
    others = layer.kernel.numpy()[..., 3:]
    assert (np.abs(others) <= 27**-0.5).all() and np.unique(others).size == others.size


def test_a_bias_moves_by_its_rate_times_its_gradient():
    x = np.random.default_rng(0).normal(size=[6, 3])
    moved = []
    for rate in (1.0, 9.0):
        layer = Bias(rate, dtype="float64")
        layer.build([None, 3])
        optimizer = keras.optimizers.SGD(0.1, momentum=0.9, nesterov=True)
        for _ in range(3):
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum(layer(x) * [1.0, -2.0, 3.0])
            optimizer.apply(
                tape.gradient(loss, layer.trainable_variables), layer.trainable_variables
            )
        moved.append(layer(np.zeros([1, 3])).numpy())
    np.testing.assert_allclose(moved[1], 9 * moved[0], rtol=1e-12)


def train_small(num_towers, *, training, **options):
    """Returns the weights after three updates of the network; what is frozen stays."""
    keras.utils.set_random_seed(1)
    random = np.random.default_rng(0)
    batches = [
        (random.normal(size=[size, 9, 9, 3]), random.integers(0, 3, [size])) for size in (8, 8, 5)
    ]
    model = fast_cnn((9, 9, 3), 3, widths=(2, 3, 4))
    frozen = model.get_layer("whitening").kernel.numpy()
    optimizer = build_optimizer("nesterov", 0.1, momentum=0.85)
    tower_fn = classification(model, training=training, label_smoothing=0.2)
    weights, _ = train_on_towers(tower_fn, model, optimizer, batches, num_towers, **options)
    np.testing.assert_array_equal(model.get_layer("whitening").kernel, frozen)
    return weights


@pytest.mark.slow
@pytest.mark.usefixtures("float64")
def test_towers_match_one_with_the_normalisation_as_it_is():
    expected = train_small(1, training=False)
    for num_towers in (2, 3):
        for left, right in zip(train_small(num_towers, training=False), expected, strict=True):
            np.testing.assert_allclose(left, right, rtol=0, atol=1e-12)


@pytest.mark.slow
@pytest.mark.usefixtures("float64")
def test_towers_match_one_in_training_with_the_same_parts():
    """Each part is normalised by its own moments, and the moving averages are their mean."""
    expected = train_small(1, training=True, accumulate=4)
    for left, right in zip(train_small(2, training=True, accumulate=2), expected, strict=True):
        np.testing.assert_allclose(left, right, rtol=0, atol=1e-12)

"""Each operation against plain NumPy on one image at a time."""

import numpy as np
import pytest
import tensorflow as tf

from towers.data.images import augmentation
from towers.ground.random_numbers import uniform_table

LARGEST_DRAW = np.nextafter(np.float32(1.0), np.float32(0.0))


@pytest.fixture
def images():
    return np.random.default_rng(0).integers(0, 256, (12, 32, 32, 3), dtype=np.uint8)


def apply(transform, images, table):
    return transform(tf.constant(images), tf.constant(table)).numpy()


def table_for(transform, images):
    return uniform_table(len(images), transform.num_uniforms, seed=1, epoch=2)


def crop(image, size, row_draw, column_draw):
    top = int(np.floor(row_draw * np.float32(image.shape[0] - size + 1)))
    left = int(np.floor(column_draw * np.float32(image.shape[1] - size + 1)))
    return image[top : top + size, left : left + size]


def flip(image, draw):
    return image[:, ::-1] if draw < 0.5 else image


def standardized(image):
    image = image.astype(np.float64)
    return (image - image.mean()) / max(image.std(), 1.0 / np.sqrt(image.size))


def tutorial_reference(image, row):
    image = flip(crop(image, 24, row[0], row[1]), row[2]).astype(np.float64)
    image = image + (2.0 * row[3] - 1.0) * 63.0
    mean = image.mean(axis=(0, 1))
    image = (image - mean) * (0.2 + 1.6 * row[4]) + mean
    return standardized(image)


def resnet_reference(image, row, mean, std, padding=4, **options):
    padded = np.pad(
        (image - mean) / std, ((padding, padding), (padding, padding), (0, 0)), **options
    )
    return flip(crop(padded, 32, row[0], row[1]), row[2])


def test_tutorial_training_is_the_reference(images):
    transform = augmentation.tutorial_training()
    table = table_for(transform, images)
    result = apply(transform, images, table)
    expected = [tutorial_reference(*pair) for pair in zip(images, table, strict=True)]
    assert result.dtype == np.float32
    np.testing.assert_allclose(result, expected, atol=2e-5)


def test_tutorial_evaluation_is_the_reference(images):
    transform = augmentation.tutorial_evaluation()
    expected = [standardized(image[4:28, 4:28]) for image in images]
    np.testing.assert_allclose(
        apply(transform, images, table_for(transform, images)), expected, atol=2e-5
    )


@pytest.mark.parametrize(("padding", "mode"), [(4, "constant"), (2, "reflect")])
def test_resnet_training_is_the_reference(padding, mode, images):
    mean, std = augmentation.channel_moments(images)
    transform = augmentation.resnet_training(mean, std, padding=padding, mode=mode.upper())
    table = table_for(transform, images)
    expected = [
        resnet_reference(image, row, mean, std, padding, mode=mode)
        for image, row in zip(images, table, strict=True)
    ]
    np.testing.assert_allclose(apply(transform, images, table), expected, atol=1e-5)


def test_an_alternating_flip_mirrors_every_example_in_every_second_epoch(images):
    transform = augmentation.Transform(
        (augmentation.random_crop(32, 32), augmentation.random_flip(alternates=True))
    )
    epochs = [
        apply(transform, images, transform.uniforms(len(images), seed=1, epoch=epoch))
        for epoch in range(4)
    ]
    np.testing.assert_array_equal(epochs[1], epochs[0][:, :, ::-1])
    np.testing.assert_array_equal(epochs[2:], epochs[:2])
    unflipped = [np.array_equal(*pair) for pair in zip(epochs[0], images, strict=True)]
    assert 0 < sum(unflipped) < len(images)
    tables = [transform.uniforms(9, seed=1, epoch=epoch) for epoch in range(2)]
    assert not np.isclose(tables[0][:, :2], tables[1][:, :2]).any()
    assert (np.abs(tables[0][:, 2] - tables[1][:, 2]) == 0.5).all()


def test_cutout_blanks_a_square_inside_the_image(images):
    transform = augmentation.Transform((augmentation.cutout(12),))
    table = np.float32([[0, 0], [LARGEST_DRAW, LARGEST_DRAW], *table_for(transform, images)[2:]])
    result = apply(transform, images, table)
    for image, (row, column), changed in zip(images, table, result, strict=True):
        top, left = (int(np.floor(draw * np.float32(32 - 12 + 1))) for draw in (row, column))
        expected = image.astype("float32")
        expected[top : top + 12, left : left + 12] = 0
        np.testing.assert_array_equal(changed, expected)
    with pytest.raises(ValueError, match="must fit into the image"):
        apply(augmentation.Transform((augmentation.cutout(33),)), images, table)


def test_resnet_evaluation_normalizes_the_whole_image(images):
    mean, std = augmentation.channel_moments(images)
    transform = augmentation.resnet_evaluation(mean, std)
    result = apply(transform, images, table_for(transform, images))
    np.testing.assert_allclose(result.mean(axis=(0, 1, 2)), 0.0, atol=1e-5)
    np.testing.assert_allclose(result.std(axis=(0, 1, 2)), 1.0, atol=1e-5)


def test_scaled_reaches_zero_and_one():
    images = np.array([0, 51, 255], dtype=np.uint8).reshape(1, 1, 3, 1)
    result = apply(augmentation.scaled(), images, np.zeros((1, 0), np.float32))
    np.testing.assert_allclose(result.ravel(), [0.0, 0.2, 1.0], atol=1e-7)


def test_an_example_is_augmented_alike_in_any_batch(images):
    transform = augmentation.tutorial_training()
    table = table_for(transform, images)
    whole = apply(transform, images, table)
    chosen = [7, 2]
    np.testing.assert_allclose(
        apply(transform, images[chosen], table[chosen]), whole[chosen], atol=1e-6
    )


def test_moments_are_those_of_numpy(images):
    mean, std = augmentation.channel_moments(images)
    np.testing.assert_allclose(mean, images.mean(axis=(0, 1, 2)), rtol=1e-12)
    np.testing.assert_allclose(std, images.std(axis=(0, 1, 2)), rtol=1e-12)


@pytest.mark.parametrize("size", range(1, 33))
def test_extreme_uniforms_crop_at_the_edges(images, size):
    transform = augmentation.Transform((augmentation.random_crop(size, size),))
    table = np.array([[0.0, LARGEST_DRAW], [LARGEST_DRAW, 0.0]], dtype=np.float32)
    result = apply(transform, images[:2], table)
    np.testing.assert_array_equal(result[0], images[0, :size, 32 - size :])
    np.testing.assert_array_equal(result[1], images[1, 32 - size :, :size])


def test_every_position_is_as_likely_as_any_other():
    """Nine positions each way, as a crop of a padded image has."""
    image = np.arange(81, dtype=np.uint8).reshape(1, 9, 9, 1)
    transform = augmentation.Transform((augmentation.random_crop(1, 1),))
    table = uniform_table(81_000, 2, seed=0, epoch=0)
    result = apply(transform, np.broadcast_to(image, (81_000, 9, 9, 1)), table)
    counts = np.bincount(result.astype(int).ravel(), minlength=81)
    assert 850 < counts.min() <= counts.max() < 1150


def test_half_of_the_images_are_flipped():
    images = np.tile(np.array([0, 1], np.uint8).reshape(1, 1, 2, 1), (10_000, 1, 1, 1))
    transform = augmentation.Transform((augmentation.random_flip(),))
    result = apply(transform, images, uniform_table(10_000, 1, seed=0, epoch=0))
    assert 0.48 < result[:, 0, 0, 0].mean() < 0.52


def test_too_large_crop_is_refused(images):
    transform = augmentation.tutorial_training(size=33)
    with pytest.raises(ValueError, match=r"33x33 pixels for images of 32x32; choose a smaller"):
        apply(transform, images, table_for(transform, images))


def test_moments_of_other_channels_are_refused(images):
    transform = augmentation.resnet_evaluation([0.5], [0.2])
    with pytest.raises(ValueError, match=r"have 3 channels. Received 1 means"):
        apply(transform, images, table_for(transform, images))


@pytest.mark.parametrize("std", [[1.0, 0.0], [1.0]])
def test_unusable_deviations_are_refused(std):
    with pytest.raises(ValueError, match="one standard deviation above 0 for each channel"):
        augmentation.normalize([0.0, 0.0], std)

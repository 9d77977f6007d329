"""The batches of an epoch: every example once, in an order of (seed, epoch), resumable."""

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from towers.data.images import augmentation
from towers.data.images.batches import image_batches
from towers.data.images.image_set import ImageSet, split_off


def numbered_images(num_images, size=2):
    """Returns images in which every pixel is the number of the image, modulo 256."""
    numbers = np.arange(num_images) % 256
    images = np.broadcast_to(numbers[:, None, None, None], (num_images, size, size, 3))
    labels = (np.arange(num_images) % 10).astype(np.int32)
    return ImageSet(images.astype(np.uint8), labels, tuple("abcdefghij"))


def collect(dataset):
    batches = [(images.numpy(), labels.numpy()) for images, labels in dataset]
    return [images for images, _ in batches], [labels for _, labels in batches]


def numbers_of(images):
    return np.concatenate([np.rint(batch[:, 0, 0, 0] * 255) for batch in images]).astype(int)


@settings(max_examples=12, deadline=None)
@given(data=st.data(), num_images=st.integers(1, 60), batch_size=st.integers(1, 70))
def test_every_example_comes_once_and_any_step_resumes(data, num_images, batch_size):
    batches = image_batches(numbered_images(num_images), batch_size, seed=5)
    first_step = data.draw(st.integers(0, batches.steps_per_epoch))
    images, labels = collect(batches(3))
    rest = collect(batches(3, first_step))
    assert sorted(numbers_of(images)) == list(range(num_images))
    np.testing.assert_array_equal(numbers_of(images) % 10, np.concatenate(labels))
    assert [len(batch) for batch in labels[:-1]] == [batch_size] * (len(labels) - 1)
    assert len(labels) == batches.steps_per_epoch == -(-num_images // batch_size)
    assert len(rest[0]) == len(images) - first_step
    for resumed, whole in zip(
        rest[0] + rest[1], images[first_step:] + labels[first_step:], strict=True
    ):
        np.testing.assert_array_equal(resumed, whole)


@pytest.mark.parametrize("first_step", [1, 3])
def test_resumed_epoch_is_augmented_alike(first_step):
    random = np.random.default_rng(0)
    images = random.integers(0, 256, (30, 32, 32, 3), dtype=np.uint8)
    image_set = ImageSet(images, np.zeros(30, np.int32), ("thing",))
    transform = augmentation.tutorial_training()
    whole = collect(image_batches(image_set, 8, transform=transform)(2))[0]
    resumed = collect(image_batches(image_set, 8, transform=transform)(2, first_step))[0]
    for left, right in zip(resumed, whole[first_step:], strict=True):
        np.testing.assert_array_equal(left, right)


def test_augmentation_does_not_depend_on_the_batch_size():
    image_set = numbered_images(20, size=32)
    transform = augmentation.Transform((augmentation.random_brightness(63.0),))
    large = collect(image_batches(image_set, 20, shuffle=False, transform=transform)(1))[0]
    small = collect(image_batches(image_set, 3, shuffle=False, transform=transform)(1))[0]
    np.testing.assert_array_equal(np.concatenate(small), np.concatenate(large))


def test_augmentation_does_not_depend_on_the_place_in_the_order():
    image_set = numbered_images(10)  # Ten examples, so that the label says which one it is.
    transform = augmentation.Transform((augmentation.random_brightness(63.0),))
    ordered = collect(image_batches(image_set, 10, shuffle=False, transform=transform)(1))[0][0]
    images, labels = collect(image_batches(image_set, 3, transform=transform)(1))
    assert np.concatenate(labels).tolist() != list(range(10))
    np.testing.assert_array_equal(np.concatenate(images), ordered[np.concatenate(labels)])


def test_an_example_is_augmented_anew_in_each_epoch():
    transform = augmentation.Transform((augmentation.random_brightness(63.0),))
    batches = image_batches(numbered_images(20), 20, shuffle=False, transform=transform)
    assert not np.any(collect(batches(0))[0][0] == collect(batches(1))[0][0])


def test_order_is_a_function_of_seed_and_epoch():
    def order(seed, epoch):
        return numbers_of(collect(image_batches(numbered_images(40), 8, seed=seed)(epoch))[0])

    np.testing.assert_array_equal(order(1, 2), order(1, 2))
    assert order(1, 2).tolist() != order(1, 3).tolist()
    assert order(1, 2).tolist() != order(2, 2).tolist()


def test_unshuffled_order_is_that_of_the_set():
    batches = image_batches(numbered_images(10), 4, shuffle=False)
    assert numbers_of(collect(batches(7))[0]).tolist() == list(range(10))


def test_shapes_are_static_but_for_the_batch():
    transform = augmentation.tutorial_training()
    spec = image_batches(numbered_images(10, size=32), 4, transform=transform)(0).element_spec
    assert spec == (
        tf.TensorSpec([None, 24, 24, 3], tf.float32),
        tf.TensorSpec([None], tf.int32),
    )


def test_arrays_become_tensors_once():
    batches = image_batches(numbered_images(10), 4)
    batches(0)
    tensors = batches.source._tensors
    batches(1)
    assert batches.source._tensors is tensors


def test_length_is_known():
    image_set = numbered_images(10)
    batches = image_batches(image_set, 4)
    assert (len(image_set), batches.num_examples, batches.steps_per_epoch) == (10, 10, 3)
    assert batches(0, 1).cardinality() == 2


@pytest.mark.parametrize("batch_size", [0, -1])
def test_batch_size_below_one_is_refused(batch_size):
    with pytest.raises(ValueError, match=f"at least 1. Received {batch_size}"):
        image_batches(numbered_images(3), batch_size)


def test_empty_set_is_refused():
    with pytest.raises(ValueError, match="empty"):
        image_batches(numbered_images(0), 4)


def test_negative_seed_is_refused():
    with pytest.raises(ValueError, match="Received -1"):
        image_batches(numbered_images(3), 2, seed=-1)


@pytest.mark.parametrize(("epoch", "first_step"), [(-1, 0), (0, -1), (0, 4)])
def test_position_outside_of_the_epoch_is_refused(epoch, first_step):
    with pytest.raises(ValueError, match=f"epoch={epoch}, first_step={first_step}"):
        image_batches(numbered_images(10), 4)(epoch, first_step)


def test_unsuitable_transform_is_refused_before_the_first_batch():
    batches = image_batches(numbered_images(3), 2, transform=augmentation.tutorial_training())
    with pytest.raises(ValueError, match=r"^A crop must fit into the image"):
        batches(0)


@pytest.mark.parametrize("share", [0.0, 0.1, 0.25, 0.9])
def test_each_class_gives_its_share_to_choose_by_and_keeps_the_rest(share):
    labels = np.repeat([0, 1, 2], [20, 2, 1]).astype(np.int32)
    images = np.arange(len(labels), dtype=np.uint8).reshape(-1, 1, 1, 1)
    kept, given = split_off(ImageSet(images, labels, ("a", "b", "c")), share)
    assert sorted([*kept.images.ravel(), *given.images.ravel()]) == list(range(len(labels)))
    assert np.bincount(given.labels, minlength=3).tolist() == [20 * share, share > 0, 0]
    assert (labels[given.images.ravel()] == given.labels).all()

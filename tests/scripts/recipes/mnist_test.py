"""The augmentation of the recipes `mnist` and `fashion_mnist` moves and mirrors, and no more."""

import dataclasses
import itertools

import numpy as np
import pytest

from tests.data.images.idx_test import idx_bytes, write_split
from towers.scripts.recipes import mnist
from towers.scripts.training.catalogue import restore_recipe

NUM_IMAGES = 16


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The folder of published files, their images in [0, 1], which all differ, and their labels."""
    path = tmp_path_factory.mktemp("mnist")
    images = np.random.default_rng(0).integers(1, 256, (NUM_IMAGES, 28, 28), dtype=np.uint8)
    labels = np.arange(NUM_IMAGES, dtype=np.uint8) % 10
    for prefix in ("train", "t10k"):
        write_split(path, idx_bytes(images), idx_bytes(labels), prefix=prefix)
    return path, images.astype(np.float32) / 255, labels


def batches_of(folder, augmentation):
    """Returns the images and the labels of an epoch's only batch, in training and in the test."""
    fields = dataclasses.replace(mnist.Fields(), batch_size=NUM_IMAGES, augmentation=augmentation)
    data = mnist.make_data(fields, folder, seed=3)
    return [next(part(0, 0).as_numpy_iterator()) for part in (data.train, data.test)]


def views_of(image, mirrored):
    """Yields what an image may look like; without mirroring, the 12th view is the image itself."""
    padded = np.pad(image, 2)
    for top, left in itertools.product(range(5), repeat=2):
        view = padded[top : top + 28, left : left + 28]
        yield from (view, view[:, ::-1]) if mirrored else (view,)


@pytest.mark.parametrize("augmentation", ["none", "shifts", "shifts_and_flips"])
def test_each_image_is_one_of_its_views_and_keeps_its_label(folder, augmentation):
    path, images, labels = folder
    (shown, classes), (tested, tested_classes) = batches_of(path, augmentation)
    np.testing.assert_allclose(tested[..., 0], images, rtol=1e-6)
    np.testing.assert_array_equal(tested_classes, labels)
    views = [list(views_of(image, "flips" in augmentation)) for image in images]
    seen = set()
    for image, label in zip(shown[..., 0], classes, strict=True):
        found = [
            (number, view)
            for number, own in enumerate(views)
            for view, pixels in enumerate(own)
            if np.allclose(pixels, image)
        ]
        assert len(found) == 1 and labels[found[0][0]] == label
        seen.add(found[0])
    assert len({number for number, _ in seen}) == NUM_IMAGES
    used = {view for _, view in seen}
    assert len(used) > 5 if augmentation != "none" else used == {12}
    if "flips" in augmentation:
        assert {view % 2 for view in used} == {0, 1}


def test_an_unknown_augmentation_is_refused_with_the_nearest_name():
    with pytest.raises(
        ValueError, match=r"augmentation must be one of .*'shift'. Did you mean shifts"
    ):
        restore_recipe("mnist", {}, ["augmentation=shift"])

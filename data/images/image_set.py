"""Labelled images in memory."""

from __future__ import annotations

import dataclasses
import hashlib

import numpy as np

from towers.ground.random_numbers import permutation


@dataclasses.dataclass(frozen=True, eq=False)
class ImageSet:
    """Images and their classes.

    Attributes:
        images: uint8 [n, height, width, channels].
        labels: int32 [n], each an index into class_names.
        class_names: in the order of the labels.
    """

    images: np.ndarray
    labels: np.ndarray
    class_names: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.images)

    @property
    def num_classes(self) -> int:
        """The number of classes."""
        return len(self.class_names)

    def where(self, chosen: np.ndarray) -> ImageSet:
        """Returns the images that are chosen, bool [n]."""
        return ImageSet(self.images[chosen], self.labels[chosen], self.class_names)


def split_off(image_set: ImageSet, share: float) -> tuple[ImageSet, ImageSet]:
    """Returns the images without a share of each class, and this share: the same in every run.

    A class that has two images keeps one and gives one; a share of 0 gives none.
    """
    order, labels = permutation(len(image_set), seed=0, epoch=0), image_set.labels
    given = np.zeros(len(image_set), bool)
    for label in np.unique(labels) if share else ():
        own = order[labels[order] == label]
        given[own[: min(max(round(share * len(own)), 1), len(own) - 1)]] = True
    return image_set.where(~given), image_set.where(given)


def content_key(*image_sets: ImageSet) -> str:
    """Returns a digest that changes with the images and their labels."""
    digest = hashlib.blake2b(digest_size=16)
    for image_set in image_sets:
        for array in (image_set.images, image_set.labels):
            digest.update(str(array.shape).encode())
            digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()

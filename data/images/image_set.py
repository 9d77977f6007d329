"""Labelled images in memory."""

from __future__ import annotations

import dataclasses
import hashlib

import numpy as np

from towers.ground.arguments import check_choice

SPLITS = ("train", "test")


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


def content_key(*image_sets: ImageSet) -> str:
    """Returns a digest that changes with the images and their labels."""
    digest = hashlib.blake2b(digest_size=16)
    for image_set in image_sets:
        for array in (image_set.images, image_set.labels):
            digest.update(str(array.shape).encode())
            digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


def check_split(split: str) -> None:
    """Raises ValueError unless the split is one of `SPLITS`."""
    check_choice("split", split, SPLITS)

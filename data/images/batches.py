"""Labelled images in memory, and the batches of an epoch of them."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
from collections.abc import Callable

import numpy as np
import tensorflow as tf

from towers.data.batching import draws
from towers.data.batching.positions import check_position
from towers.data.images.augmentation import Transform, scaled


@dataclasses.dataclass(frozen=True, eq=False)
class ImageSet:
    """Images and their classes.

    Args:
        images: uint8 [n, height, width, channels].
        labels: int32 [n], each an index into class_names.
        class_names: in the order of the labels.
    """

    images: np.ndarray
    labels: np.ndarray
    class_names: tuple[str, ...]

    def __post_init__(self) -> None:
        if self.images.dtype != np.uint8 or self.images.ndim != 4:
            raise ValueError(
                "images must be uint8 [n, height, width, channels]. "
                f"Received {self.images.dtype} {list(self.images.shape)}."
            )
        if self.labels.dtype != np.int32 or self.labels.shape != self.images.shape[:1]:
            raise ValueError(
                f"labels must be int32 [{len(self.images)}], one for each image. "
                f"Received {self.labels.dtype} {list(self.labels.shape)}."
            )
        if len(self.labels) and not 0 <= self.labels.min() <= self.labels.max() < self.num_classes:
            raise ValueError(
                f"labels must lie in 0..{self.num_classes - 1}, one for each class name. "
                f"Received {self.labels.min()}..{self.labels.max()}."
            )

    def __len__(self) -> int:
        return len(self.images)

    @property
    def num_classes(self) -> int:
        """How many classes there are."""
        return len(self.class_names)


def content_key(*image_sets: ImageSet) -> str:
    """Returns a digest that changes with the images and their labels."""
    digest = hashlib.blake2b(digest_size=16)
    for image_set in image_sets:
        for array in (image_set.images, image_set.labels):
            digest.update(str(array.shape).encode())
            digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


def image_batches(
    image_set: ImageSet,
    batch_size: int,
    *,
    seed: int = 0,
    shuffle: bool = True,
    transform: Transform | None = None,
) -> ImageBatches:
    """Returns `batches(epoch, first_step=0) -> tf.data.Dataset` over the images.

    Args:
        image_set: the images; at least one.
        batch_size: examples of a global batch; the last one of an epoch may be smaller.
        seed: of the order and of the augmentation.
        shuffle: whether each epoch has its own order; else it is that of the image set.
        transform: what is done to a batch, by default `augmentation.scaled()`.
    """
    if batch_size < 1:
        raise ValueError(f"batch_size must be at least 1. Received {batch_size}.")
    if not len(image_set):
        raise ValueError("The image set is empty. Expected at least one image.")
    if seed < 0:
        raise ValueError(f"seed must not be negative. Received {seed}.")
    return ImageBatches(image_set, batch_size, seed, shuffle, transform or scaled())


@dataclasses.dataclass(frozen=True, eq=False)
class ImageBatches:
    """What `image_batches` returns; its arguments are the attributes."""

    image_set: ImageSet
    batch_size: int
    seed: int
    shuffle: bool
    transform: Transform

    def __call__(self, epoch: int, first_step: int = 0) -> tf.data.Dataset:
        """Returns the batches of an epoch from one of its steps on.

        Each is a pair (images: float32 [batch, height, width, channels], labels: int32 [batch]).
        Every example comes exactly once in an epoch, in an order given by (seed, epoch).

        Args:
            epoch: number of the epoch, from 0.
            first_step: how many of its batches were consumed already.
        """
        check_position(epoch, first_step, self.steps_per_epoch)
        return (
            tf.data.Dataset.range(first_step, self.steps_per_epoch)
            .map(
                self._batch_of_step(epoch), num_parallel_calls=tf.data.AUTOTUNE, deterministic=True
            )
            .prefetch(tf.data.AUTOTUNE)
        )

    @property
    def num_examples(self) -> int:
        """How many examples an epoch has."""
        return len(self.image_set)

    @property
    def steps_per_epoch(self) -> int:
        """How many batches an epoch has, a smaller last one included."""
        return -(-self.num_examples // self.batch_size)

    def _batch_of_step(self, epoch: int) -> Callable[[tf.Tensor], tuple[tf.Tensor, tf.Tensor]]:
        """Returns the function from a step of the epoch to its batch."""
        order = tf.constant(self._order(epoch))
        table = tf.constant(
            draws.uniform_table(
                self.num_examples, self.transform.num_draws, seed=self.seed, epoch=epoch
            )
        )
        encoded_images, labels = self._tensors

        @tf.autograph.experimental.do_not_convert
        def batch_of_step(step: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            rows = order[step * self.batch_size : (step + 1) * self.batch_size]
            images = tf.io.decode_raw(tf.gather(encoded_images, rows), tf.uint8)
            images = tf.reshape(images, [-1, *self.image_set.images.shape[1:]])
            return self.transform(images, tf.gather(table, rows)), tf.gather(labels, rows)

        return batch_of_step

    def _order(self, epoch: int) -> np.ndarray:
        if self.shuffle:
            return draws.permutation(self.num_examples, seed=self.seed, epoch=epoch)
        return np.arange(self.num_examples, dtype=np.int32)

    @functools.cached_property
    def _tensors(self) -> tuple[tf.Tensor, tf.Tensor]:
        """The images as byte strings [n], which stay in host memory where a GPU is the default."""
        images = np.ascontiguousarray(self.image_set.images)
        encoded_images = tf.constant([image.tobytes() for image in images])
        return encoded_images, tf.constant(self.image_set.labels)

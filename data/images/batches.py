"""Batches of labelled images: shuffled, transformed, and continued at any step of an epoch."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable

import numpy as np
import tensorflow as tf

from towers.data.batching.epochs import (
    ChooseRows,
    bounds_of,
    check_position,
    chosen_rows,
)
from towers.data.batching.random_numbers import permutation, uniform_table
from towers.data.batching.row_batches import RowBatches
from towers.data.images.augmentation import Transform, scaled
from towers.data.images.image_set import ImageSet


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
        batch_size: examples in a global batch; the last batch of an epoch may be smaller.
        seed: of the order and of the augmentation.
        shuffle: whether each epoch has its own order; otherwise the order of the image set.
        transform: applied to each batch, by default `augmentation.scaled()`.

    Raises:
        ValueError: the batch size is below 1, the seed is negative, or the image set is empty.
    """
    if batch_size < 1:
        raise ValueError(f"batch_size must be at least 1. Received {batch_size}.")
    if not len(image_set):
        raise ValueError("The image set is empty. Expected at least one image.")
    if seed < 0:
        raise ValueError(f"seed must not be negative. Received {seed}.")
    return ImageBatches(image_set, batch_size, seed, shuffle, transform or scaled())


@dataclasses.dataclass(frozen=True, eq=False)
class ImageBatches(RowBatches):
    """The batches of `image_batches`, whose arguments are the attributes."""

    image_set: ImageSet
    batch_size: int
    seed: int
    shuffle: bool
    transform: Transform

    def row_counts(self, epoch: int) -> np.ndarray:
        """Returns the number of rows of each batch of an epoch."""
        return np.diff(self._bounds)

    def rows(self, choose: ChooseRows, epoch: int, first_step: int) -> tf.data.Dataset:
        """Returns the chosen rows of each batch of an epoch.

        Each element is (images: float32 [rows, height, width, channels], labels: int32 [rows]).
        Every example occurs exactly once in an epoch, in an order given by (seed, epoch).
        """
        check_position(epoch, first_step, self.steps_per_epoch)
        batch_of_step = self._batch_of_step(epoch, choose)
        return (
            tf.data.Dataset.range(first_step, self.steps_per_epoch)
            .map(batch_of_step, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True)
            .prefetch(tf.data.AUTOTUNE)
        )

    @property
    def num_examples(self) -> int:
        """The number of examples in an epoch."""
        return len(self.image_set)

    @property
    def steps_per_epoch(self) -> int:
        """The number of batches in an epoch, a smaller last one included."""
        return -(-self.num_examples // self.batch_size)

    @property
    def input_spec(self) -> tf.TensorSpec:
        """What `pixels_of` takes: uint8 [batch, height, width, channels]."""
        return tf.TensorSpec([None, *self.image_set.images.shape[1:]], tf.uint8, name="images")

    @property
    def input_description(self) -> str:
        """The same in words."""
        height, width, channels = self.image_set.images.shape[1:]
        return f"uint8 images of {height} x {width} x {channels}"

    def pixels_of(self, images: tf.Tensor) -> tf.Tensor:
        """Returns what a network takes, by a transform without random numbers."""
        return self.transform(images, tf.zeros([tf.shape(images)[0], 0]))

    def _batch_of_step(
        self, epoch: int, choose: ChooseRows
    ) -> Callable[[tf.Tensor], tuple[tf.Tensor, tf.Tensor]]:
        """Returns the function from a step of the epoch to the chosen rows of its batch."""
        bounds = tf.constant(chosen_rows(self._bounds, choose))
        order = tf.constant(self._order(epoch))
        table = tf.constant(
            uniform_table(
                self.num_examples, self.transform.num_uniforms, seed=self.seed, epoch=epoch
            )
        )
        encoded_images, labels = self._tensors

        @tf.autograph.experimental.do_not_convert
        def batch_of_step(step: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            rows = order[bounds[step, 0] : bounds[step, 1]]
            images = tf.io.decode_raw(tf.gather(encoded_images, rows), tf.uint8)
            images = tf.reshape(images, [-1, *self.image_set.images.shape[1:]])
            return self.transform(images, tf.gather(table, rows)), tf.gather(labels, rows)

        return batch_of_step

    @property
    def _bounds(self) -> np.ndarray:
        return bounds_of(self.num_examples, self.batch_size)

    def _order(self, epoch: int) -> np.ndarray:
        if self.shuffle:
            return permutation(self.num_examples, seed=self.seed, epoch=epoch)
        return np.arange(self.num_examples, dtype=np.int32)

    @functools.cached_property
    def _tensors(self) -> tuple[tf.Tensor, tf.Tensor]:
        """The images as byte strings [n], since strings stay in host memory, and the labels."""
        images = np.ascontiguousarray(self.image_set.images)
        encoded_images = tf.constant([image.tobytes() for image in images])
        return encoded_images, tf.constant(self.image_set.labels)

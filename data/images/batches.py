"""Batches of labelled images: shuffled, transformed, and continued at any step of an epoch."""

from __future__ import annotations

import dataclasses
import functools

import numpy as np
import tensorflow as tf

from towers.data.images.augmentation import Transform, scaled
from towers.data.images.image_set import ImageSet
from towers.ground.epochs import Epoch, Epochs, even_layout


def image_batches(
    image_set: ImageSet,
    batch_size: int,
    *,
    seed: int = 0,
    shuffle: bool = True,
    transform: Transform | None = None,
) -> Epochs:
    """Returns the batches over some images; their source is `Images`.

    A batch is (images: float32 [rows, height, width, channels], labels: int32 [rows]).

    Args:
        image_set: the images; at least one.
        batch_size: examples in a global batch; the last batch of an epoch may be smaller.
        seed: of the order and of the augmentation.
        shuffle: whether each epoch has its own order; otherwise the order of the image set.
        transform: applied to each batch, by default `augmentation.scaled()`.

    Raises:
        ValueError: the batch size is below 1, the seed is negative, or the image set is empty.
    """
    layout = even_layout(len(image_set), batch_size)
    if not len(image_set):
        raise ValueError("The image set is empty. Expected at least one image.")
    source = Images(image_set, transform or scaled())
    return Epochs(source.load, layout, len(image_set), seed, shuffle, source)


@dataclasses.dataclass(frozen=True, eq=False)
class Images:
    """Images in memory, as a network takes them; the attributes are as in `image_batches`."""

    image_set: ImageSet
    transform: Transform

    def load(self, epoch: Epoch) -> tf.data.Dataset:
        """Returns the batches of an epoch."""
        table = tf.constant(
            self.transform.uniforms(len(self.image_set), seed=epoch.seed, epoch=epoch.number)
        )
        order = tf.constant(epoch.order())
        encoded_images, labels = self._tensors

        @tf.autograph.experimental.do_not_convert
        def batch_of(start: tf.Tensor, stop: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            rows = order[start:stop]
            images = tf.io.decode_raw(tf.gather(encoded_images, rows), tf.uint8)
            images = tf.reshape(images, [-1, *self.image_set.images.shape[1:]])
            return self.transform(images, tf.gather(table, rows)), tf.gather(labels, rows)

        batches = epoch.slices().map(
            batch_of, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True
        )
        return batches.prefetch(tf.data.AUTOTUNE)

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

    @functools.cached_property
    def _tensors(self) -> tuple[tf.Tensor, tf.Tensor]:
        """The images as byte strings [n], since strings stay in host memory, and the labels."""
        images = np.ascontiguousarray(self.image_set.images)
        encoded_images = tf.constant([image.tobytes() for image in images])
        return encoded_images, tf.constant(self.image_set.labels)

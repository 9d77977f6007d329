"""Transforms from a batch of uint8 images to the float32 input of a network, random or not.

A transform is a chain of operations on whole batches. It owns no random state: it receives a row
of uniform random numbers for each example, so that the augmentation of an example does not depend
on its batch.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from towers.ground.random_numbers import uniform_table


def scaled() -> Transform:
    """Returns the deterministic transform for MNIST-like images, to [0, 1]."""
    scale = Operation(0, lambda images, uniforms: tf.cast(images, tf.float32) / 255.0)
    return Transform((scale,))


def tutorial_training(*, size: int = 24) -> Transform:
    """Returns the distortions of the TensorFlow CIFAR-10 tutorial.

    Source: `distorted_inputs` in cifar10_input.py, github.com/tensorflow/models.
    """
    return Transform(
        (
            random_crop(size, size),
            random_flip(),
            random_brightness(63.0),
            random_contrast(0.2, 1.8),
            standardize(),
        )
    )


def tutorial_evaluation() -> Transform:
    """Returns the tutorial's transform for evaluation: central crop and standardisation."""
    return Transform((central_crop(24, 24), standardize()))


def resnet_training(
    mean: Sequence[float],
    std: Sequence[float],
    *,
    size: int = 32,
    padding: int = 4,
    mode: str = "CONSTANT",
    alternates: bool = False,
) -> Transform:
    """Returns the augmentation of He et al. 2015 (arXiv:1512.03385), section 4.2.

    The mean is subtracted first, so the padding has the colour of the mean. The paper subtracts
    the mean of each pixel; this subtracts the mean of each channel and divides by its standard
    deviation.

    Args:
        mean: of each channel, as `channel_moments` returns it.
        std: standard deviation of each channel.
        size: height and width of the crop, in pixels.
        padding: pixels on each side.
        mode: of the padding, as in `pad`.
        alternates: as in `random_flip`.
    """
    first = (normalize(mean, std), pad(padding, mode))
    return Transform((*first, random_crop(size, size), random_flip(alternates=alternates)))


def resnet_evaluation(mean: Sequence[float], std: Sequence[float]) -> Transform:
    """Returns the transform for the evaluation after `resnet_training`: only normalisation."""
    return Transform((normalize(mean, std),))


def channel_moments(images: np.ndarray) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Returns mean and standard deviation of each channel of uint8 [n, height, width, channels].

    They are computed from exact histograms, not from float32 sums over many pixels.
    """
    values = np.arange(256, dtype=np.float64)
    means, deviations = [], []
    for channel in range(images.shape[-1]):
        histogram = np.bincount(images[..., channel].ravel(), minlength=256)
        mean = histogram @ values / histogram.sum()
        means.append(float(mean))
        deviations.append(float(np.sqrt(histogram @ (values - mean) ** 2 / histogram.sum())))
    return tuple(means), tuple(deviations)


class Operation(NamedTuple):
    """One step of a transform.

    Attributes:
        num_uniforms: number of uniform random numbers for each example.
        apply: `apply(images, uniforms) -> images`, where images are uint8 or
            float32 [batch, height, width, channels] and uniforms are float32
            [batch, num_uniforms] in [0, 1).
        alternates: whether the numbers of an example are those of epoch 0 in every even epoch, and
            one half further, modulo 1, in every odd one.
    """

    num_uniforms: int
    apply: Callable[[tf.Tensor, tf.Tensor], tf.Tensor]
    alternates: bool = False


@dataclasses.dataclass(frozen=True)
class Transform:
    """A chain of operations, applied in their order."""

    operations: tuple[Operation, ...]

    @property
    def num_uniforms(self) -> int:
        """The number of uniform random numbers for each example, of the whole chain."""
        return sum(operation.num_uniforms for operation in self.operations)

    def uniforms(self, num_examples: int, *, seed: int, epoch: int) -> np.ndarray:
        """Returns the random numbers of an epoch, float32 [num_examples, num_uniforms]."""
        numbers = uniform_table(num_examples, self.num_uniforms, seed=seed, epoch=epoch)
        alternates = [one.alternates for one in self.operations for _ in range(one.num_uniforms)]
        if any(alternates):
            first = uniform_table(num_examples, self.num_uniforms, seed=seed, epoch=0)
            odd = first + np.where(first < 0.5, np.float32(0.5), np.float32(-0.5))
            numbers[:, alternates] = (odd if epoch % 2 else first)[:, alternates]
        return numbers

    def then(self, operation: Operation) -> Transform:
        """Returns the chain with one operation more at its end."""
        return Transform((*self.operations, operation))

    def __call__(self, images: tf.Tensor, uniforms: tf.Tensor) -> tf.Tensor:
        """Returns float32 [batch, height, width, channels].

        Args:
            images: uint8 [batch, height, width, channels].
            uniforms: float32 [batch, num_uniforms] in [0, 1).
        """
        first = 0
        for operation in self.operations:
            images = operation.apply(images, uniforms[:, first : first + operation.num_uniforms])
            first += operation.num_uniforms
        return tf.cast(images, tf.float32)


def standardize() -> Operation:
    """Gives every image mean 0 and variance 1, as `tf.image.per_image_standardization` does."""
    return Operation(0, lambda images, uniforms: tf.image.per_image_standardization(images))


def normalize(mean: Sequence[float], std: Sequence[float]) -> Operation:
    """Subtracts the mean of each channel and divides by its standard deviation."""
    if len(mean) != len(std) or not all(deviation > 0 for deviation in std):
        raise ValueError(
            "normalize() needs one mean and one standard deviation above 0 for each channel. "
            f"Received mean={mean}, std={std}."
        )

    def apply(images: tf.Tensor, uniforms: tf.Tensor) -> tf.Tensor:
        if images.shape[-1] != len(mean):
            raise ValueError(
                f"The images have {images.shape[-1]} channels. Received {len(mean)} means; "
                "compute them with channel_moments() from the images of the training set."
            )
        return (tf.cast(images, tf.float32) - tf.constant(mean)) / tf.constant(std)

    return Operation(0, apply)


def pad(padding: int, mode: str = "CONSTANT") -> Operation:
    """Adds `padding` pixels on each side: zeros, or with REFLECT those inside, reflected."""
    paddings = [[0, 0], [padding, padding], [padding, padding], [0, 0]]
    return Operation(0, lambda images, uniforms: tf.pad(images, paddings, mode))


def central_crop(height: int, width: int) -> Operation:
    """Crops the centre; the smaller half of an odd margin is above and to the left."""

    def apply(images: tf.Tensor, uniforms: tf.Tensor) -> tf.Tensor:
        top, left = (margin // 2 for margin in crop_margins(images, height, width))
        return images[:, top : top + height, left : left + width]

    return Operation(0, apply)


def random_crop(height: int, width: int) -> Operation:
    """Crops a window at a uniformly random position."""

    def apply(images: tf.Tensor, uniforms: tf.Tensor) -> tf.Tensor:
        num_positions = [margin + 1 for margin in crop_margins(images, height, width)]
        offsets = tf.cast(uniforms * tf.constant(num_positions, tf.float32), tf.int32)
        rows = offsets[:, 0, tf.newaxis] + tf.range(height)
        columns = offsets[:, 1, tf.newaxis] + tf.range(width)
        images = tf.gather(images, rows, axis=1, batch_dims=1)
        return tf.gather(images, columns, axis=2, batch_dims=1)

    return Operation(2, apply)


def crop_margins(images: tf.Tensor, height: int, width: int) -> tuple[int, int]:
    """Returns the differences of height and width between the images and the crop."""
    margins = images.shape[1] - height, images.shape[2] - width
    if min(margins) < 0 or min(height, width) < 1:
        raise ValueError(
            f"A crop must fit into the image. Received a crop of {height}x{width} pixels for "
            f"images of {images.shape[1]}x{images.shape[2]}; choose a smaller crop."
        )
    return margins


def random_flip(*, alternates: bool = False) -> Operation:
    """Mirrors an image left to right with probability 1/2; or it alternates:

    in every second epoch, half of all in even ones, half in odd (Jordan 2024, arXiv:2404.00498,
    section 3.6).
    """

    def apply(images: tf.Tensor, uniforms: tf.Tensor) -> tf.Tensor:
        return tf.where(_per_image(uniforms) < 0.5, tf.reverse(images, axis=[2]), images)

    return Operation(1, apply, alternates)


def cutout(size: int) -> Operation:
    """Sets a square of `size` pixels, at a uniformly random position in the image, to zero.

    DeVries and Taylor 2017 (arXiv:1708.04552), here with the whole square inside the image. After
    `normalize` a zero is the mean colour.
    """

    def apply(images: tf.Tensor, uniforms: tf.Tensor) -> tf.Tensor:
        covered = []
        for axis, margin in enumerate(crop_margins(images, size, size)):
            first = tf.cast(
                uniforms[:, axis, tf.newaxis] * tf.cast(margin + 1, tf.float32), tf.int32
            )
            pixels = tf.range(images.shape[axis + 1])
            covered.append((pixels >= first) & (pixels < first + size))
        square = covered[0][:, :, tf.newaxis] & covered[1][:, tf.newaxis]
        return tf.where(square[..., tf.newaxis], tf.zeros_like(images), images)

    return Operation(2, apply)


def random_brightness(max_delta: float) -> Operation:
    """Adds a number from [-max_delta, max_delta) to every pixel of an image, without clipping."""

    def apply(images: tf.Tensor, uniforms: tf.Tensor) -> tf.Tensor:
        return tf.cast(images, tf.float32) + (2.0 * _per_image(uniforms) - 1.0) * max_delta

    return Operation(1, apply)


def random_contrast(lower: float, upper: float) -> Operation:
    """Scales the deviations of each channel from its mean by a factor from [lower, upper)."""

    def apply(images: tf.Tensor, uniforms: tf.Tensor) -> tf.Tensor:
        images = tf.cast(images, tf.float32)
        mean = tf.reduce_mean(images, axis=[1, 2], keepdims=True)
        factor = lower + (upper - lower) * _per_image(uniforms)
        return (images - mean) * factor + mean

    return Operation(1, apply)


def _per_image(uniforms: tf.Tensor) -> tf.Tensor:
    return uniforms[:, :, tf.newaxis, tf.newaxis]

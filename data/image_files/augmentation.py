"""The augmentation of a picture: random, but a function of its seed."""

from __future__ import annotations

import dataclasses
from typing import Any

import tensorflow as tf

from towers.data.image_files.crops import central_crop, random_crop, random_resized_crop
from towers.data.image_files.rand_augment import rand_augment
from towers.ground.arguments import check_choice

AUGMENTATIONS = ("none", "flip", "crop", "standard", "colour", "randaugment")
MOST_BRIGHTER, CONTRASTS, SATURATIONS = 0.4 * 255, (0.6, 1.4), (0.6, 1.4)


@dataclasses.dataclass(frozen=True)
class Augmentation:
    """From the bytes of a picture to the pixels that a network sees.

    Attributes:
        size: height and width of the result.
        kind: none; flip; crop: the square of `central_share` at a random place, and flip;
            standard: random resized crop and flip; colour: that, and brightness, contrast and
            saturation; randaugment: standard, and RandAugment.
        smallest_crop: the random resized crop has at least this share of the picture's area.
        central_share: side of the central square, which is seen without a random crop, as a share
            of the shorter side of the picture.
        magnitude: of RandAugment, from 0 to 1.
        only_jpeg: whether all pictures are JPEGs.
    """

    size: int
    kind: str = "standard"
    smallest_crop: float = 0.08
    central_share: float = 0.875
    magnitude: float = 0.5
    only_jpeg: bool = False

    def __post_init__(self) -> None:
        check_choice("augmentation", self.kind, AUGMENTATIONS)

    def __call__(self, encoded: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
        """Returns float32 [size, size, 3], 0 to 255.

        Args:
            encoded: string scalar, the bytes of a picture.
            seed: int64 [2].
        """
        if self.kind == "none":
            return self._central(encoded)
        crop_seed, flip_seed, colour_seed = tf.unstack(tf.random.split(seed, 3))
        pixels = self._central(encoded) if self.kind == "flip" else self._random(encoded, crop_seed)
        pixels = tf.image.stateless_random_flip_left_right(pixels, flip_seed)
        if self.kind == "colour":
            pixels = random_colours(pixels, colour_seed)
        if self.kind == "randaugment":
            pixels = rand_augment(pixels, colour_seed, self.magnitude)
        return tf.ensure_shape(pixels, [self.size, self.size, 3])

    def _central(self, encoded: tf.Tensor) -> tf.Tensor:
        return central_crop(
            encoded, size=self.size, share=self.central_share, only_jpeg=self.only_jpeg
        )

    def _random(self, encoded: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
        options: dict[str, Any] = {"size": self.size, "only_jpeg": self.only_jpeg}
        if self.kind == "crop":
            return random_crop(encoded, seed, share=self.central_share, **options)
        return random_resized_crop(encoded, seed, smallest=self.smallest_crop, **options)


def random_colours(pixels: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
    """Returns a picture with another brightness, contrast and saturation, 0 to 255."""
    first, second, third = tf.unstack(tf.random.split(seed, 3))
    pixels = tf.image.stateless_random_brightness(pixels, MOST_BRIGHTER, first)
    pixels = tf.image.stateless_random_contrast(pixels, *CONTRASTS, second)
    pixels = tf.clip_by_value(pixels, 0.0, 255.0)
    pixels = tf.image.stateless_random_saturation(pixels, *SATURATIONS, third)
    return tf.clip_by_value(pixels, 0.0, 255.0)

"""The augmentation of a picture: random, but a function of its seed."""

from __future__ import annotations

import dataclasses

import tensorflow as tf

from towers.data.image_files.decoding import ANY, USUAL, Look, decode_window
from towers.data.image_files.rand_augment import rand_augment
from towers.ground.arguments import check_choice

AUGMENTATIONS = ("none", "flip", "shift", "crop", "standard", "colour", "randaugment")
FLIPS = ("random", "alternating")
MOST_SHIFTED = 2  # Pixels (Jordan 2024, arXiv:2404.00498, section 3.1).
MOST_BRIGHTER, CONTRASTS, SATURATIONS = 0.4 * 255, (0.6, 1.4), (0.6, 1.4)
RATIOS = (3 / 4, 4 / 3)  # Width to height (Szegedy et al. 2015, arXiv:1409.4842, section 6).
ATTEMPTS = 10
Flip = tuple[tf.Tensor, bool]
WHOLE = ((0.0, 0.0, 1.0, 1.0),)


@dataclasses.dataclass(frozen=True)
class Augmentation:
    """From the bytes of a picture to the pixels that a network sees.

    Attributes:
        size: height and width of the result.
        kind: none; flip; shift: by up to two pixels of the result, beyond whose edges it is
            reflected, and flip; crop: the square of `central_share` at a random place, and flip;
            standard: random resized crop and flip; colour: that, and brightness, contrast and
            saturation; randaugment: standard, and RandAugment.
        smallest_crop: the random resized crop has at least this fraction of the picture's area.
        central_share: side of the central square, which is seen without a random crop, as a
            fraction of the shorter side of the picture.
        magnitude: of RandAugment, from 0 to 1.
        known: what is known of all pictures, as in `decode_window`.
        look: how pixels become RGB of 8 bits.
        flip: random, or alternating: mirrored in every second epoch, half of all examples in even
            ones, half in odd ones (section 3.6 there).
    """

    size: int
    kind: str = "standard"
    smallest_crop: float = 0.08
    central_share: float = 0.875
    magnitude: float = 0.5
    known: str = ANY
    look: Look = USUAL
    flip: str = "random"

    def __post_init__(self) -> None:
        check_choice("augmentation", self.kind, AUGMENTATIONS)
        check_choice("flip", self.flip, FLIPS)

    def __call__(self, encoded: tf.Tensor, seed: tf.Tensor, flip: Flip | None = None) -> tf.Tensor:
        """Returns float32 [size, size, 3], 0 to 255.

        Args:
            encoded: string scalar, the bytes of a picture.
            seed: int64 [2].
            flip: of alternating flips, the seed of epoch 0, and whether the epoch is odd.
        """
        crop_seed, flip_seed, colour_seed = tf.unstack(tf.random.split(seed, 3))

        def window(shape: tf.Tensor) -> tf.Tensor:
            if self.kind in ("none", "flip", "shift"):
                return central_square(shape, self.central_share)
            if self.kind == "crop":
                return random_square(shape, crop_seed, self.central_share)
            return random_window(shape, crop_seed, self.smallest_crop)

        pixels = decode_window(encoded, window, self.known, self.look)
        pixels = tf.image.resize(pixels, [self.size, self.size])
        if self.kind == "none":
            return pixels
        if self.kind == "shift":
            pixels = shifted(pixels, crop_seed)
        if flip is None:
            pixels = tf.image.stateless_random_flip_left_right(pixels, flip_seed)
        else:
            pixels = alternately_flipped(pixels, flip)
        if self.kind == "colour":
            pixels = random_colours(pixels, colour_seed)
        if self.kind == "randaugment":
            pixels = rand_augment(pixels, colour_seed, self.magnitude)
        return tf.ensure_shape(pixels, [self.size, self.size, 3])


def central_square(shape: tf.Tensor, fraction: float) -> tf.Tensor:
    """Returns the central square of a picture: top, left, height and width, int32 [4].

    The shape is height, width and channels, int32 [3]; the fraction is of its shorter side.
    """
    side = square_side(shape, fraction)
    return tf.concat([(shape[:2] - side) // 2, tf.stack([side, side])], 0)


def random_square(shape: tf.Tensor, seed: tf.Tensor, fraction: float) -> tf.Tensor:
    """Returns a square of a picture at a random place, as large as `central_square`'s.

    Krizhevsky et al. 2012, "ImageNet Classification with Deep Convolutional Neural Networks",
    section 4.1.
    """
    side = square_side(shape, fraction)
    corners = shape[:2] - side + 1  # Down and across.
    random = tf.random.stateless_uniform([2], seed, None, None, dtype=tf.uint32)
    corner = tf.cast(random, tf.int64) % tf.cast(corners, tf.int64)
    return tf.concat([tf.cast(corner, tf.int32), tf.stack([side, side])], 0)


def shifted(pixels: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
    """Returns a picture moved by up to `MOST_SHIFTED` pixels, of which it is larger."""
    most = [MOST_SHIFTED, MOST_SHIFTED]
    padded = tf.pad(pixels, [most, most, [0, 0]], "REFLECT")
    return tf.image.stateless_random_crop(padded, tf.shape(pixels), seed)


def alternately_flipped(pixels: tf.Tensor, flip: Flip) -> tf.Tensor:
    """Returns a picture or its mirror image: in even epochs what a seed says, else the other."""
    seed, odd = flip
    flipped = (tf.random.stateless_uniform([], seed) < 0.5) != odd
    return tf.cond(flipped, lambda: tf.reverse(pixels, [1]), lambda: pixels)


def square_side(shape: tf.Tensor, fraction: float) -> tf.Tensor:
    """Returns a fraction, above 0, of a picture's shorter side, in whole pixels, int32."""
    side = tf.reduce_min(shape[:2])
    if fraction == 1:
        return side
    part = tf.round(fraction * tf.cast(side, tf.float32))
    return tf.maximum(tf.cast(part, tf.int32), 1)


def random_window(shape: tf.Tensor, seed: tf.Tensor, smallest: float) -> tf.Tensor:
    """Returns a random part of a picture that has at least this fraction of its area.

    Szegedy et al. 2015, "Going Deeper with Convolutions", section 6.
    """
    begin, extent, _ = tf.image.stateless_sample_distorted_bounding_box(
        shape,
        tf.constant([WHOLE]),
        seed,
        min_object_covered=0.0,
        aspect_ratio_range=RATIOS,
        area_range=(smallest, 1.0),
        max_attempts=ATTEMPTS,
        use_image_if_no_bounding_boxes=True,
    )
    return tf.concat([begin[:2], extent[:2]], 0)


def random_colours(pixels: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
    """Returns a picture with another brightness, contrast and saturation, 0 to 255."""
    first, second, third = tf.unstack(tf.random.split(seed, 3))
    pixels = tf.image.stateless_random_brightness(pixels, MOST_BRIGHTER, first)
    pixels = tf.image.stateless_random_contrast(pixels, *CONTRASTS, second)
    pixels = tf.clip_by_value(pixels, 0.0, 255.0)
    pixels = tf.image.stateless_random_saturation(pixels, *SATURATIONS, third)
    return tf.clip_by_value(pixels, 0.0, 255.0)

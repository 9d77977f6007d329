"""Crops: from the bytes of a picture to a square of pixels, for training and for evaluation."""

from __future__ import annotations

from collections.abc import Callable

import tensorflow as tf

from towers.data.image_files.decoding import CHANNELS, decode, is_jpeg

RATIOS = (3 / 4, 4 / 3)  # Of width to height (Szegedy et al. 2015, arXiv:1409.4842, section 6).
ATTEMPTS = 10
WHOLE = ((0.0, 0.0, 1.0, 1.0),)


def random_resized_crop(
    encoded: tf.Tensor, seed: tf.Tensor, *, size: int, smallest: float, only_jpeg: bool
) -> tf.Tensor:
    """Returns a random part of a picture, resized to a square.

    Szegedy et al. 2015, "Going Deeper with Convolutions", section 6.

    Args:
        encoded: string scalar, the bytes of a picture.
        seed: int64 [2].
        size: height and width of the result.
        smallest: the part has at least this share of the picture's area.
        only_jpeg: whether the bytes are those of a JPEG for sure.

    Returns:
        float32 [size, size, 3], 0 to 255.
    """

    def random_window(shape: tf.Tensor) -> tf.Tensor:
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

    return tf.image.resize(decode_window(encoded, random_window, only_jpeg), [size, size])


def central_crop(encoded: tf.Tensor, *, size: int, share: float, only_jpeg: bool) -> tf.Tensor:
    """Returns the central square of a picture.

    Args:
        encoded: string scalar, the bytes of a picture.
        size: height and width of the result.
        share: side of the square as a share of the picture's shorter side.
        only_jpeg: whether the bytes are those of a JPEG for sure.

    Returns:
        float32 [size, size, 3], 0 to 255.
    """

    def central_window(shape: tf.Tensor) -> tf.Tensor:
        side = square_side(shape, share)
        return tf.concat([(shape[:2] - side) // 2, tf.stack([side, side])], 0)

    return tf.image.resize(decode_window(encoded, central_window, only_jpeg), [size, size])


def random_crop(
    encoded: tf.Tensor, seed: tf.Tensor, *, size: int, share: float, only_jpeg: bool
) -> tf.Tensor:
    """Returns a square of a picture at a random place, as large as `central_crop`'s.

    Krizhevsky et al. 2012, "ImageNet Classification with Deep Convolutional Neural Networks",
    section 4.1.

    Args:
        encoded: string scalar, the bytes of a picture.
        seed: int64 [2].
        size: height and width of the result.
        share: side of the square as a share of the picture's shorter side.
        only_jpeg: whether the bytes are those of a JPEG for sure.

    Returns:
        float32 [size, size, 3], 0 to 255.
    """

    def random_square(shape: tf.Tensor) -> tf.Tensor:
        side = square_side(shape, share)
        places = shape[:2] - side + 1  # Of the corner, down and across.
        random = tf.random.stateless_uniform([2], seed, None, None, dtype=tf.uint32)
        corner = tf.cast(random, tf.int64) % tf.cast(places, tf.int64)
        return tf.concat([tf.cast(corner, tf.int32), tf.stack([side, side])], 0)

    return tf.image.resize(decode_window(encoded, random_square, only_jpeg), [size, size])


def square_side(shape: tf.Tensor, share: float) -> tf.Tensor:
    """Returns `share` of a picture's shorter side, a whole number of pixels, int32.

    Args:
        shape: height, width and channels, int32 [3].
        share: above 0, at most 1.
    """
    side = tf.reduce_min(shape[:2])
    if share == 1:
        return side
    part = tf.round(share * tf.cast(side, tf.float32))
    return tf.maximum(tf.cast(part, tf.int32), 1)


def decode_window(
    encoded: tf.Tensor, window_of: Callable[[tf.Tensor], tf.Tensor], only_jpeg: bool
) -> tf.Tensor:
    """Returns the pixels of a part of a picture; of a JPEG only the part is decoded.

    Args:
        encoded: string scalar, the bytes of a picture.
        window_of: from the picture's height, width and channels, int32 [3], to top, left, height
            and width of the part, int32 [4].
        only_jpeg: whether the bytes are those of a JPEG for sure.

    Returns:
        uint8 [height, width, 3].
    """

    def of_jpeg() -> tf.Tensor:
        window = window_of(tf.io.extract_jpeg_shape(encoded))
        return tf.io.decode_and_crop_jpeg(encoded, window, channels=CHANNELS)

    def of_any() -> tf.Tensor:
        pixels = decode(encoded)
        top, left, height, width = tf.unstack(window_of(tf.shape(pixels)))
        return pixels[top : top + height, left : left + width]

    pixels = of_jpeg() if only_jpeg else tf.cond(is_jpeg(encoded), of_jpeg, of_any)
    return tf.ensure_shape(pixels, [None, None, CHANNELS])

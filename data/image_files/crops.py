"""Crops: from the bytes of a picture to a square of pixels, for training and for evaluation."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from towers.data.image_files.decoding import CHANNELS, decode, is_jpeg

RATIOS = (3 / 4, 4 / 3)  # Of width to height (Szegedy et al. 2015, arXiv:1409.4842, section 6).
ATTEMPTS = 10
WHOLE = ((0.0, 0.0, 1.0, 1.0),)


def random_resized_crop(
    encoded: tf.Tensor, seed: tf.Tensor, *, size: int, smallest: float, only_jpeg: bool
) -> tf.Tensor:
    """Returns a random part of a picture, resized to a square.

    Szegedy et al. 2015, "Going Deeper with Convolutions", section 6. Of a JPEG only the part is
    decoded.

    Args:
        encoded: string scalar, the bytes of a picture.
        seed: int64 [2].
        size: height and width of the result.
        smallest: the part has at least this share of the picture's area.
        only_jpeg: whether the bytes are those of a JPEG for sure.

    Returns:
        float32 [size, size, 3], 0 to 255.
    """

    def of_jpeg() -> tf.Tensor:
        window = random_window(tf.io.extract_jpeg_shape(encoded), seed, smallest)
        return tf.io.decode_and_crop_jpeg(encoded, window, channels=CHANNELS)

    def of_any() -> tf.Tensor:
        pixels = decode(encoded)
        top, left, height, width = tf.unstack(random_window(tf.shape(pixels), seed, smallest))
        return pixels[top : top + height, left : left + width]

    pixels = of_jpeg() if only_jpeg else tf.cond(is_jpeg(encoded), of_jpeg, of_any)
    return resized(tf.ensure_shape(pixels, [None, None, CHANNELS]), (size, size))


def random_window(shape: tf.Tensor, seed: tf.Tensor, smallest: float) -> tf.Tensor:
    """Returns top, left, height and width of a random part, int32 [4]."""
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


def central_crop(encoded: tf.Tensor, *, size: int, share: float) -> tf.Tensor:
    """Returns the centre of a picture.

    Its shorter side is resized to `size / share`, and the central square is cut out.

    Args:
        encoded: string scalar, the bytes of a picture.
        size: height and width of the result.
        share: of the shorter side that stays.

    Returns:
        float32 [size, size, 3], 0 to 255.
    """
    pixels = decode(encoded)
    extent = tf.cast(tf.shape(pixels)[:2], tf.float32)
    scale = round(size / share) / tf.reduce_min(extent)
    target = tf.maximum(tf.cast(tf.round(extent * scale), tf.int32), size)
    pixels = resized(pixels, target)
    top, left = tf.unstack((target - size) // 2)
    square = pixels[top : top + size, left : left + size]
    return tf.ensure_shape(square, [size, size, CHANNELS])


def resized(pixels: tf.Tensor, extent: Any) -> tf.Tensor:
    """Returns pixels of another height and width, bilinear, float32."""
    return tf.image.resize(pixels, extent)

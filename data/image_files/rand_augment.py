"""RandAugment (Cubuk et al. 2020, arXiv:1909.13719), without any state.

Keras's layer of this name draws one operation for a whole batch, computes all of them, and keeps
its random numbers in variables, which a pipeline that can be resumed at any step cannot have.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import tensorflow as tf

NUM_OPERATIONS = 2  # Applied to each picture.
GREY = 128.0  # Of what a transformed picture does not cover.
MOST_SHEAR, MOST_SHIFT, MOST_DEGREES, MOST_CHANGE = 0.3, 0.45, 30.0, 0.9


def rand_augment(pixels: tf.Tensor, seed: tf.Tensor, magnitude: float) -> tf.Tensor:
    """Returns a picture after two random operations, of a strength from 0 to 1.

    Pixels are float32 [height, width, 3], 0 to 255; the seed is int64 [2].
    """
    strength = tf.constant(magnitude, tf.float32)
    uniforms = tf.random.stateless_uniform([NUM_OPERATIONS, 2], seed)
    for chosen, direction in (tf.unstack(row) for row in tf.unstack(uniforms)):
        branches = list(operations(pixels, strength, tf.where(direction < 0.5, -1.0, 1.0)).values())
        number = tf.cast(chosen * len(branches), tf.int32)
        shape = pixels.shape
        pixels = tf.ensure_shape(tf.switch_case(number, branches), shape)
        pixels = tf.clip_by_value(pixels, 0.0, 255.0)
    return pixels


def operations(
    pixels: tf.Tensor, strength: tf.Tensor, sign: tf.Tensor
) -> dict[str, Callable[[], tf.Tensor]]:
    """Returns the operations on a picture by their names; some go the way of the sign, 1 or -1."""
    height, width, _ = pixels.shape

    def signed(most: float) -> tf.Tensor:  # Within each operation, so that it rounds there.
        return sign * most * strength

    def away_from(base: tf.Tensor) -> tf.Tensor:
        return base + (pixels - base) * (1 + signed(MOST_CHANGE))

    def posterized() -> tf.Tensor:
        step = tf.pow(2.0, tf.round(4.0 * strength))  # Of 8 to 4 bits.
        return tf.floor(pixels / step) * step

    def rotated() -> tf.Tensor:
        angle = sign * strength * math.radians(MOST_DEGREES)
        across, down = (width - 1) / 2, (height - 1) / 2  # To the centre.
        sine, cosine = tf.sin(angle), tf.cos(angle)
        right = across - cosine * across + sine * down
        below = down - sine * across - cosine * down
        return project(pixels, cosine, -sine, right, sine, cosine, below)

    return {
        "identity": lambda: pixels,
        "auto_contrast": lambda: auto_contrast(pixels),
        "equalize": lambda: equalize(pixels),
        "solarize": lambda: tf.where(pixels <= 255.0 * (1 - strength), pixels, 255.0 - pixels),
        "posterize": posterized,
        "brightness": lambda: pixels * (1 + signed(MOST_CHANGE)),
        "contrast": lambda: away_from(tf.reduce_mean(tf.image.rgb_to_grayscale(pixels))),
        "colour": lambda: away_from(tf.image.rgb_to_grayscale(pixels)),
        "sharpness": lambda: away_from(tf.nn.avg_pool2d(pixels[tf.newaxis], 3, 1, "SAME")[0]),
        "rotate": rotated,
        "shear_across": lambda: project(pixels, 1.0, signed(MOST_SHEAR), 0.0, 0.0, 1.0, 0.0),
        "shear_down": lambda: project(pixels, 1.0, 0.0, 0.0, signed(MOST_SHEAR), 1.0, 0.0),
        "shift_across": lambda: project(
            pixels, 1.0, 0.0, signed(MOST_SHIFT) * width, 0.0, 1.0, 0.0
        ),
        "shift_down": lambda: project(pixels, 1.0, 0.0, 0.0, 0.0, 1.0, signed(MOST_SHIFT) * height),
    }


def auto_contrast(pixels: tf.Tensor) -> tf.Tensor:
    """Stretches each channel to the whole range."""
    low = tf.reduce_min(pixels, [0, 1], keepdims=True)
    high = tf.reduce_max(pixels, [0, 1], keepdims=True)
    return tf.where(high > low, (pixels - low) * 255.0 / tf.maximum(high - low, 1.0), pixels)


def equalize(pixels: tf.Tensor) -> tf.Tensor:
    """Gives each channel a flat histogram."""
    levels = tf.cast(tf.round(pixels), tf.int32)
    channels = [tf.gather(flattening(channel), channel) for channel in tf.unstack(levels, axis=-1)]
    return tf.stack(channels, axis=-1)


def flattening(channel: tf.Tensor) -> tf.Tensor:
    """Returns the new value of each of 256 levels: float32 [256]."""
    counts = tf.math.bincount(tf.reshape(channel, [-1]), minlength=256, maxlength=256)
    fractions = tf.cast(tf.cumsum(counts), tf.float32) / tf.cast(tf.size(channel), tf.float32)
    return tf.round(255.0 * fractions)


def project(pixels: tf.Tensor, *numbers: tf.Tensor | float) -> tf.Tensor:
    """Returns the picture seen through an affine map, bilinear, grey where it does not reach.

    The numbers are the first two rows of the map from positions in the result to those in the
    picture.
    """
    transform = tf.stack([*(tf.cast(number, tf.float32) for number in numbers), 0.0, 0.0])
    return tf.raw_ops.ImageProjectiveTransformV3(
        images=pixels[tf.newaxis],
        transforms=transform[tf.newaxis],
        output_shape=tf.shape(pixels)[:2],
        fill_value=GREY,
        interpolation="BILINEAR",
        fill_mode="CONSTANT",
    )[0]

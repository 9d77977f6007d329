"""RandAugment (Cubuk et al. 2020, arXiv:1909.13719), without any state.

Keras's layer of this name draws one operation for a whole batch, computes all of them, and keeps
its random numbers in variables, which a pipeline that can be resumed at any step cannot have.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

import tensorflow as tf

NUM_OPERATIONS = 2  # Applied to each picture.
GREY = 128.0  # Of what a transformed picture does not cover.
MOST_SHEAR, MOST_SHIFT, MOST_DEGREES, MOST_CHANGE = 0.3, 0.45, 30.0, 0.9

Operation = Callable[[tf.Tensor, tf.Tensor, tf.Tensor], tf.Tensor]


def rand_augment(pixels: tf.Tensor, seed: tf.Tensor, magnitude: float) -> tf.Tensor:
    """Returns a picture after two random operations, of a strength from 0 to 1.

    Pixels are float32 [height, width, 3], 0 to 255; the seed is int64 [2].
    """
    strength = tf.constant(magnitude, tf.float32)
    uniforms = tf.random.stateless_uniform([NUM_OPERATIONS, 2], seed)
    for chosen, direction in (tf.unstack(row) for row in tf.unstack(uniforms)):
        number = tf.cast(chosen * len(OPERATIONS), tf.int32)
        sign = tf.where(direction < 0.5, -1.0, 1.0)
        branches = [
            functools.partial(operation, pixels, strength, sign) for operation in OPERATIONS
        ]
        shape = pixels.shape
        pixels = tf.ensure_shape(tf.switch_case(number, branches), shape)
        pixels = tf.clip_by_value(pixels, 0.0, 255.0)
    return pixels


def identity(pixels: tf.Tensor, strength: tf.Tensor, sign: tf.Tensor) -> tf.Tensor:
    """Returns the picture as it is."""
    return pixels


def auto_contrast(pixels: tf.Tensor, strength: tf.Tensor, sign: tf.Tensor) -> tf.Tensor:
    """Stretches each channel to the whole range."""
    low = tf.reduce_min(pixels, [0, 1], keepdims=True)
    high = tf.reduce_max(pixels, [0, 1], keepdims=True)
    return tf.where(high > low, (pixels - low) * 255.0 / tf.maximum(high - low, 1.0), pixels)


def equalize(pixels: tf.Tensor, strength: tf.Tensor, sign: tf.Tensor) -> tf.Tensor:
    """Gives each channel a flat histogram."""
    levels = tf.cast(tf.round(pixels), tf.int32)
    channels = [tf.gather(flattening(channel), channel) for channel in tf.unstack(levels, axis=-1)]
    return tf.stack(channels, axis=-1)


def flattening(channel: tf.Tensor) -> tf.Tensor:
    """Returns the new value of each of 256 levels: float32 [256]."""
    counts = tf.math.bincount(tf.reshape(channel, [-1]), minlength=256, maxlength=256)
    fractions = tf.cast(tf.cumsum(counts), tf.float32) / tf.cast(tf.size(channel), tf.float32)
    return tf.round(255.0 * fractions)


def solarize(pixels: tf.Tensor, strength: tf.Tensor, sign: tf.Tensor) -> tf.Tensor:
    """Inverts the levels above a threshold."""
    return tf.where(pixels <= 255.0 * (1 - strength), pixels, 255.0 - pixels)


def posterize(pixels: tf.Tensor, strength: tf.Tensor, sign: tf.Tensor) -> tf.Tensor:
    """Keeps 8 to 4 bits of each level."""
    step = tf.pow(2.0, tf.round(4.0 * strength))
    return tf.floor(pixels / step) * step


def brightness(pixels: tf.Tensor, strength: tf.Tensor, sign: tf.Tensor) -> tf.Tensor:
    """Scales the levels."""
    return pixels * (1 + sign * MOST_CHANGE * strength)


def contrast(pixels: tf.Tensor, strength: tf.Tensor, sign: tf.Tensor) -> tf.Tensor:
    """Scales the distances from the mean grey."""
    mean = tf.reduce_mean(tf.image.rgb_to_grayscale(pixels))
    return mean + (pixels - mean) * (1 + sign * MOST_CHANGE * strength)


def colour(pixels: tf.Tensor, strength: tf.Tensor, sign: tf.Tensor) -> tf.Tensor:
    """Scales the distances from grey."""
    grey = tf.image.rgb_to_grayscale(pixels)
    return grey + (pixels - grey) * (1 + sign * MOST_CHANGE * strength)


def sharpness(pixels: tf.Tensor, strength: tf.Tensor, sign: tf.Tensor) -> tf.Tensor:
    """Scales the distances from the smoothed picture."""
    smoothed = tf.nn.avg_pool2d(pixels[tf.newaxis], 3, 1, "SAME")[0]
    return smoothed + (pixels - smoothed) * (1 + sign * MOST_CHANGE * strength)


def rotate(pixels: tf.Tensor, strength: tf.Tensor, sign: tf.Tensor) -> tf.Tensor:
    """Turns the picture around its centre."""
    angle = sign * strength * math.radians(MOST_DEGREES)
    across, down = centre(pixels)
    sine, cosine = tf.sin(angle), tf.cos(angle)
    right = across - cosine * across + sine * down
    below = down - sine * across - cosine * down
    return project(pixels, cosine, -sine, right, sine, cosine, below)


def shear_across(pixels: tf.Tensor, strength: tf.Tensor, sign: tf.Tensor) -> tf.Tensor:
    """Moves the rows against each other."""
    return project(pixels, 1.0, sign * MOST_SHEAR * strength, 0.0, 0.0, 1.0, 0.0)


def shear_down(pixels: tf.Tensor, strength: tf.Tensor, sign: tf.Tensor) -> tf.Tensor:
    """Moves the columns against each other."""
    return project(pixels, 1.0, 0.0, 0.0, sign * MOST_SHEAR * strength, 1.0, 0.0)


def shift_across(pixels: tf.Tensor, strength: tf.Tensor, sign: tf.Tensor) -> tf.Tensor:
    """Moves the picture to a side."""
    return project(pixels, 1.0, 0.0, sign * MOST_SHIFT * strength * pixels.shape[1], 0.0, 1.0, 0.0)


def shift_down(pixels: tf.Tensor, strength: tf.Tensor, sign: tf.Tensor) -> tf.Tensor:
    """Moves the picture up or down."""
    return project(pixels, 1.0, 0.0, 0.0, 0.0, 1.0, sign * MOST_SHIFT * strength * pixels.shape[0])


def centre(pixels: tf.Tensor) -> tuple[float, float]:
    """Returns the position of the centre, from the left and from above."""
    return (pixels.shape[1] - 1) / 2, (pixels.shape[0] - 1) / 2


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


OPERATIONS: tuple[Operation, ...] = (
    identity,
    auto_contrast,
    equalize,
    solarize,
    posterize,
    brightness,
    contrast,
    colour,
    sharpness,
    rotate,
    shear_across,
    shear_down,
    shift_across,
    shift_down,
)

"""Decoding: from the bytes of a picture file to pixels, and whether that is possible."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import NamedTuple

import tensorflow as tf

SUFFIXES = (".jpg", ".jpeg", ".jpe", ".png", ".webp", ".bmp", ".gif")
JPEG_START = b"\xff\xd8\xff"
BMP_HEADER = 30  # Bytes up to the end of the number of bits per pixel.
CHANNELS = 3


class Picture(NamedTuple):
    """What is known about a picture that can be decoded.

    Attributes:
        is_jpeg: whether it is a JPEG, of which a part can be decoded alone.
        height, width: in pixels.
    """

    is_jpeg: bool
    height: int
    width: int


def examine(encoded: bytes) -> Picture:
    """Returns what decoding a picture file finds; ValueError says why it cannot be decoded."""
    if not encoded:
        raise ValueError("the file is empty")
    check_palette(encoded)
    try:
        height, width, _ = decode(tf.constant(encoded)).shape
    except (tf.errors.InvalidArgumentError, tf.errors.UnimplementedError) as error:
        raise ValueError(reason_of(error)) from error
    if not height or not width:
        raise ValueError("it has no pixel")
    return Picture(encoded.startswith(JPEG_START), height, width)


def decode(encoded: tf.Tensor) -> tf.Tensor:
    """Returns the pixels of a JPEG, PNG, GIF, BMP or WebP file, uint8 [height, width, 3].

    An animation has its first frame. Grey and CMYK become RGB, transparency is left out.
    """
    pixels = tf.io.decode_image(encoded, channels=CHANNELS, expand_animations=False)
    return tf.ensure_shape(pixels, [None, None, CHANNELS])


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


def is_jpeg(encoded: tf.Tensor) -> tf.Tensor:
    """Returns whether the bytes are those of a JPEG, a bool scalar."""
    return tf.equal(tf.strings.substr(encoded, 0, len(JPEG_START)), JPEG_START)


def check_palette(encoded: bytes) -> None:
    """Raises ValueError for a BMP with colours in a palette, which TensorFlow takes for grey."""
    if not encoded.startswith(b"BM") or len(encoded) < BMP_HEADER:
        return
    (pixels,) = struct.unpack_from("<I", encoded, 10)
    (header,) = struct.unpack_from("<I", encoded, 14)
    (bits,) = struct.unpack_from("<H", encoded, 28)
    if bits > 8:
        return
    palette = encoded[14 + header : pixels]
    grey = b"".join(bytes((level, level, level, 0)) for level in range(256))
    if bits < 8 or not grey.startswith(palette):
        raise ValueError("a BMP with a palette cannot be decoded; save it as PNG")


def reason_of(error: tf.errors.OpError) -> str:
    """Returns the message of an error without the names of ops."""
    text = str(error.message).splitlines()[0]
    text = text.partition("}} ")[2] or text
    return text.partition(" [Op:")[0].rstrip(". ")

"""Decoding: from the bytes of a picture file to pixels as viewers show them, and whether it works.

TensorFlow decodes JPEG, PNG and WebP, also in a graph that is exported; a turned JPEG, an alpha
channel and 16 bits are put right there. Pillow rewrites every other file as PNG beforehand.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import importlib.util
import io
import threading
import warnings
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from PIL import Image, ImageOps, UnidentifiedImageError

SUFFIXES = (
    ".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff", ".avif",
    ".heic", ".heif", ".ppm", ".pgm", ".pbm", ".pnm", ".jp2", ".tga", ".ico",
)  # fmt: skip
JPEG_START, PNG_START, WEBP = b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n", b"WEBPVP8"
HEIC_STARTS = (b"ftypheic", b"ftypheix", b"ftypmif1", b"ftypmsf1", b"ftyphevc")
ORIENTATION = 0x0112  # The tag's number (Exif 2.3, section 4.6.4).
EXIF_START, EXIF_BYTES = b"Exif\0\0", 2**16
PNG_DEPTH, DEEP, DEEP_TYPE = 24, b"\x10", tf.uint16  # Where a PNG has its bits per sample.
PNG_COLOUR, PNG_PLAIN = 25, (0, 2)  # Where it has its kind of colour; grey and RGB.
PNG_TURNED = (b"eXIf", b"Raw profile type exif", b"tiff:Orientation")
WEBP_FLAGS, WEBP_ANIMATED, WEBP_EXIF, WEBP_ALPHA = 20, 0x02, 0x08, 0x10  # (RFC 9649, 2.7.)
EXTENDED_WEBP = b"VP8X"
BMP_START, BMP_HEADER, BMP_DEPTH = b"BM", 14, 28  # Its size and its bits are at these places.
GREYS = b"".join(bytes((level, level, level, 0)) for level in range(256))  # As a palette.
CHANNELS = 3
DCT = "INTEGER_ACCURATE"  # As Pillow and browsers; TensorFlow's own is off by up to 20 levels.
ANY, PLAIN, JPEG = "any", "plain", "jpeg"
# What may be said about a picture, besides its size.
UPRIGHT_JPEG, TURNED, TRANSPARENT, DEEP_PICTURE, REWRITTEN, FLAT = TRAITS = (
    "upright JPEG", "turned", "transparent", "16 bits", "rewritten", "one colour"
)  # fmt: skip


class Look(NamedTuple):
    """How pixels become RGB of 8 bits.

    Attributes:
        background: grey level behind what is transparent, 0 to 255.
        highest: the level of pictures of 16 bits that becomes 255.
    """

    background: int = 255
    highest: int = 2**16 - 1


USUAL = Look()
FILTERS = threading.RLock()


class Picture(NamedTuple):
    """What is known about a picture that can be decoded.

    Attributes:
        height, width: in pixels, as viewers show it.
        traits: of `TRAITS`.
        highest: its highest level if it has 16 bits, else 0.
    """

    height: int
    width: int
    traits: frozenset[str]
    highest: int = 0


def examine(encoded: bytes) -> Picture:
    """Returns what decoding a picture file finds; ValueError says why it cannot be decoded."""
    if not encoded:
        raise ValueError("the file is empty")
    if len(encoded) <= PNG_DEPTH and (encoded.startswith(PNG_START) or is_webp(encoded)):
        raise ValueError("the file ends too early")  # TensorFlow's error quotes its bytes.
    check_size(encoded)
    own = viewable(encoded)
    try:
        pixels = decode(tf.constant(own)).numpy()
        highest, is_transparent = levels_of(own)
    except (tf.errors.InvalidArgumentError, tf.errors.UnimplementedError) as error:
        raise ValueError(reason_of(error)) from error
    height, width, _ = pixels.shape
    if not height or not width:
        raise ValueError("it has no pixel")
    is_turned = orientation_in(encoded) != 1
    found = {
        UPRIGHT_JPEG: own.startswith(JPEG_START) and not is_turned,
        TURNED: is_turned,
        TRANSPARENT: is_transparent,
        DEEP_PICTURE: highest > 0,
        REWRITTEN: own is not encoded,
        FLAT: bool((pixels == pixels[0, 0]).all()),
    }
    return Picture(height, width, frozenset(name for name in TRAITS if found[name]), highest)


def check_size(encoded: bytes) -> None:
    """Raises ValueError if a picture has more pixels than Pillow reads, before any is decoded."""
    try:
        with without_warnings():
            Image.open(io.BytesIO(encoded))
    except Image.DecompressionBombError as error:
        raise ValueError(f"it is too large: {error}".partition(", could")[0]) from error
    except Exception:  # What else is wrong with it, decoding says.
        return


def levels_of(encoded: bytes) -> tuple[int, bool]:
    """Returns the highest level of a PNG of 16 bits, else 0, and whether a pixel is transparent."""
    is_deep = encoded.startswith(PNG_START) and encoded[PNG_DEPTH : PNG_DEPTH + 1] == DEEP
    if encoded.startswith(PNG_START):
        pixels = tf.io.decode_png(encoded, dtype=DEEP_TYPE if is_deep else tf.uint8)
    elif is_webp(encoded):
        pixels = tf.io.decode_webp(encoded)
    else:
        return 0, False
    levels, num_channels = pixels.numpy(), pixels.shape[-1]
    num_colours = num_channels - (num_channels % 2 == 0)
    highest = int(levels[..., :num_colours].max(initial=1)) if is_deep else 0
    return highest, bool((levels[..., num_colours:] < pixels.dtype.max).any())


def decode(encoded: tf.Tensor, look: Look = USUAL) -> tf.Tensor:
    """Returns the pixels of a JPEG, PNG, WebP, GIF or BMP file, uint8 [height, width, 3].

    An animation has its first frame. Grey and CMYK become RGB. `viewable` brings other files here.
    """

    def of_jpeg() -> tf.Tensor:
        pixels = tf.io.decode_jpeg(encoded, CHANNELS, dct_method=DCT)
        return upright(pixels, orientation_of(encoded))

    def of_png() -> tf.Tensor:
        is_deep = tf.equal(tf.strings.substr(encoded, PNG_DEPTH, 1), DEEP)
        return tf.cond(
            is_deep,
            lambda: on_background(tf.io.decode_png(encoded, dtype=DEEP_TYPE), look),
            lambda: on_background(tf.io.decode_png(encoded), look),
        )

    def of_webp() -> tf.Tensor:
        with tf.control_dependencies([check_webp(encoded)]):
            return on_background(tf.io.decode_webp(encoded)[0], look)

    def of_other() -> tf.Tensor:
        with tf.control_dependencies([check_bitmap(encoded)]):
            return decode_plainly(encoded)

    pixels = tf.case(
        [
            (starts_with(encoded, JPEG_START), of_jpeg),
            (starts_with(encoded, PNG_START), of_png),
            (tf.equal(tf.strings.substr(encoded, 8, len(WEBP)), WEBP), of_webp),
        ],
        default=of_other,
    )
    return tf.ensure_shape(pixels, [None, None, CHANNELS])


def check_webp(encoded: tf.Tensor) -> tf.Operation:
    """Fails for an animation without alpha, of which TensorFlow writes outside its memory."""
    is_extended = tf.equal(tf.strings.substr(encoded, 12, len(EXTENDED_WEBP)), EXTENDED_WEBP)
    flags = tf.io.decode_raw(tf.strings.substr(encoded, WEBP_FLAGS, 1), tf.uint8)
    flags = tf.bitwise.bitwise_and(flags, WEBP_ANIMATED | WEBP_ALPHA)
    is_unsafe = is_extended & tf.reduce_all(tf.equal(flags, WEBP_ANIMATED))
    return tf.debugging.Assert(~is_unsafe, ["an animated WebP; give it a picture, such as a frame"])


def check_bitmap(encoded: tf.Tensor) -> tf.Operation:
    """Fails for a BMP with colours in a palette, of which TensorFlow shows the numbers as greys."""

    def has_colours() -> tf.Tensor:
        head = tf.io.decode_raw(tf.strings.substr(encoded, 0, BMP_DEPTH + 1), tf.uint8)
        palette = BMP_HEADER + tf.cast(head[BMP_HEADER], tf.int32)
        is_grey = tf.equal(tf.strings.substr(encoded, palette, len(GREYS)), GREYS)
        return tf.equal(head[BMP_DEPTH], 8) & ~is_grey

    is_unread = tf.cond(starts_with(encoded, BMP_START), has_colours, lambda: False)
    return tf.debugging.Assert(~is_unread, ["a BMP with a palette; save it as PNG"])


def on_background(pixels: tf.Tensor, look: Look) -> tf.Tensor:
    """Returns uint8 [height, width, 3] of grey or coloured pixels, with alpha or without."""
    num_channels, levels = tf.shape(pixels)[2], pixels
    if pixels.dtype != tf.uint8:
        levels = tf.minimum(tf.cast(pixels, tf.float32) * 255 / look.highest, 255)
    colours = tf.cond(
        num_channels < CHANNELS,
        lambda: tf.repeat(levels[..., :1], CHANNELS, axis=2),
        lambda: levels[..., :CHANNELS],
    )

    def blended() -> tf.Tensor:
        alpha = tf.cast(pixels[..., -1:], tf.float32) / pixels.dtype.max
        return tf.cast(colours, tf.float32) * alpha + look.background * (1 - alpha)

    def as_bytes(found: tf.Tensor) -> tf.Tensor:
        return tf.cast(tf.round(found), tf.uint8)  # What has bytes is not copied.

    has_alpha = num_channels % 2 == 0
    return tf.cond(has_alpha, lambda: as_bytes(blended()), lambda: as_bytes(colours))


def orientation_of(encoded: tf.Tensor) -> tf.Tensor:
    """Returns how a JPEG is stored, 1 to 8, from its Exif tag; 1 if it has none. int32 scalar."""
    head = tf.strings.substr(encoded, 0, EXIF_BYTES)
    parts = tf.strings.split(head, EXIF_START, maxsplit=1)
    if_none = tf.ones([], tf.int32)
    return tf.cond(tf.size(parts) == 2, lambda: orientation_in_tiff(parts[1]), lambda: if_none)


def orientation_in_tiff(content: tf.Tensor) -> tf.Tensor:
    """Returns the orientation in the first directory of a TIFF (TIFF 6.0, section 2)."""
    data = tf.cast(tf.io.decode_raw(content, tf.uint8), tf.int32)
    is_little = tf.equal(data[0], ord("I"))

    def short(place: tf.Tensor) -> tf.Tensor:
        place = tf.clip_by_value(place, 0, tf.size(data) - 2)
        one, other = tf.gather(data, place), tf.gather(data, place + 1)
        return tf.where(is_little, one + 256 * other, 256 * one + other)

    begin = short(tf.where(is_little, 4, 6))  # It is long, and never far.
    entries = begin + 2 + 12 * tf.range(tf.minimum(short(begin), tf.size(data) // 12))
    of_orientation = tf.equal(short(entries), ORIENTATION)
    found = tf.reduce_max(tf.where(of_orientation, short(entries + 8), 1), keepdims=True)
    found = tf.reduce_max(tf.concat([found, [1]], 0))
    return tf.where(found <= 8, found, 1)


def upright(pixels: tf.Tensor, orientation: tf.Tensor) -> tf.Tensor:
    """Returns a picture that is stored in this orientation as viewers show it."""

    def when(orientations: tuple[int, ...], change: Callable[[tf.Tensor], tf.Tensor]) -> tf.Tensor:
        is_one = tf.reduce_any(tf.equal(orientation, orientations))
        return tf.cond(is_one, lambda: change(pixels), lambda: pixels)

    pixels = when((5, 6, 7, 8), lambda stored: tf.transpose(stored, [1, 0, 2]))
    pixels = when((2, 3, 6, 7), lambda stored: tf.reverse(stored, [1]))
    return when((3, 4, 7, 8), lambda stored: tf.reverse(stored, [0]))


def decode_window(
    encoded: tf.Tensor,
    window_of: Callable[[tf.Tensor], tf.Tensor],
    known: str = ANY,
    look: Look = USUAL,
) -> tf.Tensor:
    """Returns the pixels of a part of a picture; of an upright JPEG only the part is decoded.

    Args:
        encoded: string scalar, the bytes of a picture.
        window_of: from the picture's height, width and channels, int32 [3], to top, left, height
            and width of the part, int32 [4].
        known: what is known of the picture: `ANY` nothing, `PLAIN` that it is neither turned nor
            transparent nor of 16 bits, `JPEG` that it is an upright JPEG.
        look: how pixels become RGB of 8 bits.

    Returns:
        uint8 [height, width, 3].
    """

    def of_jpeg() -> tf.Tensor:
        window = window_of(tf.io.extract_jpeg_shape(encoded))
        return tf.io.decode_and_crop_jpeg(encoded, window, CHANNELS, dct_method=DCT)

    def of_other() -> tf.Tensor:
        pixels = decode_plainly(encoded) if known == PLAIN else decode(encoded, look)
        top, left, height, width = tf.unstack(window_of(tf.shape(pixels)))
        return pixels[top : top + height, left : left + width]

    if known == JPEG:
        return tf.ensure_shape(of_jpeg(), [None, None, CHANNELS])
    is_jpeg = starts_with(encoded, JPEG_START)
    if known == ANY:
        is_jpeg = tf.cond(is_jpeg, lambda: tf.equal(orientation_of(encoded), 1), lambda: False)
    return tf.ensure_shape(tf.cond(is_jpeg, of_jpeg, of_other), [None, None, CHANNELS])


def decode_plainly(encoded: tf.Tensor) -> tf.Tensor:
    """Returns the pixels of a picture as TensorFlow decodes them, uint8 [height, width, 3]."""
    return tf.io.decode_image(encoded, channels=CHANNELS, expand_animations=False)


def starts_with(encoded: tf.Tensor, start: bytes) -> tf.Tensor:
    """Returns whether bytes start so, a bool scalar."""
    return tf.equal(tf.strings.substr(encoded, 0, len(start)), start)


def viewable(encoded: bytes) -> bytes:
    """Returns a picture file that TensorFlow decodes as viewers show it: this one, or a PNG.

    Raises:
        ValueError: Pillow cannot read it either, or a library is missing.
    """
    if encoded.startswith(JPEG_START) or is_still(encoded):
        return encoded
    if encoded[4:12] in HEIC_STARTS and not reads_heic():
        raise ValueError("HEIC needs a library: pip install pillow-heif, or save it as JPEG")
    content = io.BytesIO()
    try:
        with without_warnings():
            first_frame(Image.open(io.BytesIO(encoded))).save(content, "PNG", compress_level=1)
    except UnidentifiedImageError as error:
        raise ValueError("Unknown image file format") from error
    except Exception as error:  # Pillow's readers raise what they like.
        raise ValueError(f"it cannot be decoded: {error}"[:100]) from error
    return content.getvalue()


def is_still(encoded: bytes) -> bool:
    """Returns whether TensorFlow decodes bytes, of a PNG or a WebP, as viewers show them.

    It does not turn a picture, takes no other frame than the first, and reads no colour that stands
    for a transparent one.
    """
    if encoded.startswith(PNG_START):
        head = encoded[: encoded.find(b"IDAT")]
        is_deep = head[PNG_DEPTH : PNG_DEPTH + 1] == DEEP  # Pillow would take some of its bits.
        if b"tRNS" in head and head[PNG_COLOUR] in PNG_PLAIN and not is_deep:
            return False
        may_be_turned = any(start in encoded[:EXIF_BYTES] for start in PNG_TURNED)
        return not may_be_turned or orientation_in(encoded) == 1
    if not is_webp(encoded):
        return False
    is_extended = encoded[12:16] == EXTENDED_WEBP
    flags = encoded[WEBP_FLAGS] if is_extended and len(encoded) > WEBP_FLAGS else 0
    is_turned = flags & WEBP_EXIF and orientation_in(encoded) != 1
    return not (flags & WEBP_ANIMATED or is_turned)


def is_webp(encoded: bytes) -> bool:
    """Returns whether bytes are those of a WebP."""
    return encoded[8:15] == WEBP


def orientation_in(encoded: bytes) -> int:
    """Returns how a picture is stored, 1 to 8, as Pillow finds it."""
    if encoded.startswith(JPEG_START) and EXIF_START not in encoded[:EXIF_BYTES]:
        return 1
    try:
        with without_warnings():
            found = Image.open(io.BytesIO(encoded)).getexif().get(ORIENTATION, 1)
    except Exception:  # What is wrong with it, decoding says.
        return 1
    return found if found in range(1, 9) else 1


@contextlib.contextmanager
def without_warnings() -> Iterator[None]:
    """The scope without Pillow's warnings, such as of metadata; one thread at a time is in it.

    Python's filters of warnings are those of all threads.
    """
    with FILTERS, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def first_frame(image: Image.Image) -> Image.Image:
    """Returns the first frame of a picture, upright, as RGB, RGBA or grey of 16 bits."""
    if image.mode == "F":
        raise ValueError("its pixels are floating-point numbers")
    tiles = getattr(image, "tile", None) if image.format == "GIF" else None
    box = tiles[0][1] if tiles else None
    image = ImageOps.exif_transpose(image)
    if image.mode.startswith("I"):
        levels = np.asarray(image).clip(0, 2**16 - 1)
        return Image.fromarray(levels.astype(np.uint16))
    if box is not None and tuple(box) != (0, 0, *image.size):
        canvas = Image.new("RGBA", image.size)  # Around its first frame an animation is clear.
        canvas.paste(image.convert("RGBA").crop(box), box)
        return canvas
    return image.convert("RGBA" if image.has_transparency_data else "RGB")


@functools.cache
def reads_heic() -> bool:
    """Returns whether Pillow reads HEIC, which the library pillow-heif teaches it."""
    if importlib.util.find_spec("pillow_heif") is None:
        return False
    importlib.import_module("pillow_heif").register_heif_opener()
    return True


def reason_of(error: tf.errors.OpError) -> str:
    """Returns the message of an error without the names of ops."""
    text = str(error.message).splitlines()[0]
    text = text.partition("}} ")[2] or text
    return text.partition(" [Op:")[0].rstrip(". ")

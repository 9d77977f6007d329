"""Pictures become RGB whatever their kind is, and what cannot be decoded is named."""

import functools
import io
import itertools
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image, ImageOps

from tests.data.image_files.pictures import KINDS, encode
from tests.programs import run
from towers.data.image_files.decoding import (
    Look,
    decode,
    decode_window,
    examine,
    on_background,
    orientation_of,
    viewable,
)

COLOUR = (200, 100, 40)


@pytest.mark.parametrize("_, mode, kind", KINDS)
def test_every_kind_becomes_rgb(_, mode, kind):
    image = Image.new("RGB", (30, 20), COLOUR).convert(mode)
    encoded = encode(image, kind)
    picture = examine(encoded)
    assert (picture.height, picture.width) == (20, 30)
    assert ("upright JPEG" in picture.traits) == (kind == "JPEG")
    pixels = decode(tf.constant(viewable(encoded))).numpy()
    expected = np.asarray(image.convert("RGB"))[0, 0].astype(float)
    assert np.abs(pixels.mean((0, 1)) - expected).max() < 8


def test_an_animation_is_its_first_frame():
    frames = [Image.new("P", (6, 4), number) for number in (1, 2, 3)]
    encoded = encode(frames[0], "GIF")
    content = io.BytesIO()
    frames[0].save(content, "GIF", save_all=True, append_images=frames[1:])
    np.testing.assert_array_equal(
        decode(tf.constant(content.getvalue())), decode(tf.constant(encoded))
    )


@pytest.mark.parametrize(
    "encoded, reason",
    [
        (b"", "the file is empty"),
        (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", "the file ends too early"),
        (b"RIFF\xde\xad\0\0WEBPVP8X", "the file ends too early"),
        (b"no picture", "Unknown image file format"),
        (encode(Image.new("RGB", (9, 9)), "JPEG")[:-30], "Invalid JPEG data"),
        (encode(Image.new("RGB", (9, 9)), "PNG")[:40], "PNG"),
        (encode(Image.new("F", (9, 9)), "TIFF"), "floating-point"),
        (b"\0\0\0\x18ftypheic" + 20 * b"\0", "pip install pillow-heif"),
    ],
)
def test_what_cannot_be_decoded_is_said_in_a_few_words(encoded, reason):
    with pytest.raises(ValueError, match=reason) as error:
        examine(encoded)
    assert len(str(error.value)) < 120 and "\n" not in str(error.value)


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP", "GIF", "BMP"])
def test_what_has_more_pixels_than_pillow_reads_is_named(kind, monkeypatch):
    encoded = encode(Image.new("RGB", (30, 20)), kind)
    examine(encoded)
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 299)
    with pytest.raises(
        ValueError, match=r"^it is too large: Image size \(600 pixels\) .* 598 pixels$"
    ):
        examine(encoded)


PEAK = """
import resource, sys
from pathlib import Path
from towers.data.image_files.decoding import examine
small, large = (Path(one).read_bytes() for one in sys.argv[1:])
examine(small)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
examine(large)
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024)
"""


def test_an_opaque_png_is_decoded_without_copies_in_floats(tmp_path):
    paths = []
    for size in (30, 3000):
        paths.append(tmp_path / f"{size}.png")
        paths[-1].write_bytes(encode(Image.linear_gradient("L").resize((size, size)), "PNG"))
    output = run([sys.executable, "-c", PEAK, *paths], stderr=subprocess.DEVNULL)
    assert int(output) < 20 * 3000**2  # Bytes; a copy in floats has 12 for each pixel.


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
@pytest.mark.parametrize("num_channels", [1, 2, 3, 4])
def test_pixels_are_those_of_the_formula(dtype, num_channels):
    pixels = np.random.default_rng(0).integers(
        0, np.iinfo(dtype).max, (40, 30, num_channels), dtype
    )
    found = on_background(tf.constant(pixels), Look(70, 40_000))
    highest = np.float32(255 if dtype == np.uint8 else 40_000)
    levels = np.minimum(pixels.astype(np.float32) * 255 / highest, np.float32(255))
    alpha = pixels[..., -1:] / np.float32(np.iinfo(dtype).max) if num_channels % 2 == 0 else 1
    colours = levels[..., :3] if num_channels > 2 else levels[..., :1]
    expected = np.round(colours * alpha + 70 * (1 - np.float32(alpha))).astype(np.uint8)
    np.testing.assert_array_equal(found, np.broadcast_to(expected, (40, 30, 3)))


def pixels_of(encoded, look=None):
    """Returns the pixels that a graph decodes."""
    return graph_of(look or Look())(tf.constant(viewable(encoded))).numpy()


@functools.cache
def graph_of(look):
    return tf.function(lambda one: decode(one, look), autograph=False)


def of_viewer(encoded):
    """Returns the pixels that Pillow shows, upright and on white."""
    image = ImageOps.exif_transpose(Image.open(io.BytesIO(encoded))).convert("RGBA")
    white = Image.new("RGBA", image.size, "white")
    return np.asarray(Image.alpha_composite(white, image).convert("RGB"))


@pytest.mark.parametrize("mode", ["L", "RGB", "CMYK"])
def test_a_jpeg_has_the_pixels_that_viewers_show(mode):
    levels = np.random.default_rng(0).integers(0, 255, (12, 10, 3), np.uint8)
    image = Image.fromarray(levels.repeat(6, 0).repeat(7, 1)).convert(mode)
    content = io.BytesIO()
    image.save(content, "JPEG", quality=98, subsampling=0)
    encoded, expected = tf.constant(content.getvalue()), of_viewer(content.getvalue()).astype(int)
    part = decode_window(encoded, lambda _: tf.constant([8, 16, 40, 50]))
    for found, pixels in ((decode(encoded), expected), (part, expected[8:48, 16:66])):
        assert np.abs(found.numpy().astype(int) - pixels).max() <= 1


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP"])
@pytest.mark.parametrize("order", "IM")
def test_a_picture_is_turned_as_its_tag_says(orientation, kind, order):
    exif = Image.Exif()
    exif.endian = {"I": "<", "M": ">"}[order]
    exif[0x010F], exif[0x0112] = "maker", orientation
    pixels = np.random.default_rng(0).integers(0, 255, (3, 5, 3), np.uint8).repeat(16, 0)
    options = {"quality": 95} if kind == "JPEG" else {"lossless": True}
    content = io.BytesIO()
    Image.fromarray(pixels.repeat(16, 1)).save(content, kind, exif=exif, **options)
    encoded = content.getvalue()
    assert ("turned" in examine(encoded).traits) == (orientation != 1)
    found, expected = pixels_of(encoded).astype(int), of_viewer(encoded)
    assert found.shape == expected.shape and np.abs(found - expected).mean() < 2
    if kind == "JPEG":
        assert int(orientation_of(tf.constant(encoded))) == orientation


@pytest.mark.parametrize(
    "mode, kind", [*itertools.product(["RGBA", "LA", "P"], ["PNG", "WEBP", "TIFF"]), ("P", "GIF")]
)
def test_what_is_transparent_is_on_the_background(mode, kind):
    pixels = np.random.default_rng(1).integers(0, 2, (12, 9, 4), np.uint8) * 255
    image = Image.fromarray(pixels, "RGBA").convert("LA" if mode == "LA" else "RGBA")
    options = {"lossless": True} if kind == "WEBP" else {}
    if mode == "P" and kind in ("PNG", "GIF"):
        image, options = image.convert("RGB").quantize(4), {"transparency": 0}
    content = io.BytesIO()
    image.save(content, kind, **options)
    encoded = content.getvalue()
    assert "transparent" in examine(encoded).traits or kind in ("GIF", "TIFF")
    found = pixels_of(encoded).astype(int)
    assert np.abs(found - of_viewer(encoded)).max() <= 1
    assert not np.array_equal(found, pixels_of(encoded, Look(background=0)))


@pytest.mark.parametrize(("mode", "colour"), [("RGB", (0, 0, 0)), ("L", 0)])
def test_a_colour_that_stands_for_transparent_is_on_the_background(mode, colour):
    levels = np.random.default_rng(1).integers(0, 2, (12, 9), np.uint8) * 200
    content = io.BytesIO()
    Image.fromarray(levels).convert(mode).save(content, "PNG", transparency=colour)
    encoded = content.getvalue()
    assert {"transparent", "rewritten"} <= examine(encoded).traits
    np.testing.assert_array_equal(pixels_of(encoded), of_viewer(encoded))
    assert set(np.unique(pixels_of(encoded))) == {200, 255}


@pytest.mark.parametrize("kind", ["PNG", "TIFF"])
def test_sixteen_bits_are_scaled_by_the_highest_level_of_all(kind):
    levels = np.arange(4096, dtype=np.uint16).reshape(64, 64)
    encoded = encode(Image.fromarray(levels), kind)
    picture = examine(encoded)
    assert "16 bits" in picture.traits and picture.highest == 4095
    found = pixels_of(encoded, Look(highest=4095))
    np.testing.assert_array_equal(found[..., 0], np.round(levels * np.float32(255) / 4095))
    assert pixels_of(encoded).max() == 16


@pytest.mark.parametrize("depth", [1, 2, 4])
def test_few_bits_are_opaque(depth):
    """TensorFlow gives their alpha channel a level of so many bits."""
    image = Image.new("RGB", (8, 8), COLOUR).quantize(2**depth)
    content = io.BytesIO()
    image.save(content, "PNG", bits=depth)
    np.testing.assert_array_equal(pixels_of(content.getvalue()), of_viewer(content.getvalue()))


def test_files_that_tensorflow_does_not_decode_are_rewritten():
    animation = io.BytesIO()
    frames = [Image.new("RGBA", (8, 6), colour) for colour in ("red", "blue")]
    frames[0].save(animation, "WEBP", save_all=True, append_images=frames[1:], lossless=True)
    palette = encode(Image.new("RGB", (9, 9), COLOUR).convert("P"), "BMP")
    for encoded in (animation.getvalue(), palette, encode(frames[1], "AVIF")):
        assert "rewritten" in examine(encoded).traits
        assert np.abs(pixels_of(encoded).astype(int) - of_viewer(encoded)).max() <= 2


def test_a_gif_is_clear_around_a_smaller_first_frame():
    encoded = bytearray(encode(Image.new("P", (6, 4), 0), "GIF"))
    encoded[6:10] = b"\x0c\0\x09\0"  # The canvas: 12 by 9.
    pixels = pixels_of(bytes(encoded))
    assert pixels.shape == (9, 12, 3) and (pixels[:4, :6] == 0).all()
    assert (pixels[4:] == 255).all() and (pixels[:, 6:] == 255).all()


def test_pictures_of_one_colour_are_told():
    assert "one colour" in examine(encode(Image.new("RGB", (9, 9), COLOUR), "PNG")).traits


def test_a_grey_bitmap_keeps_its_level():
    encoded = encode(Image.new("L", (9, 9), 77), "BMP")
    examine(encoded)
    assert set(np.unique(decode(tf.constant(encoded)))) == {77}


def test_an_exported_graph_takes_no_numbers_of_a_palette_for_levels():
    graph = tf.function(decode, input_signature=[tf.TensorSpec([], tf.string)])
    for mode in ("L", "RGB"):
        image = Image.new(mode, (9, 5), "grey")
        assert (graph(tf.constant(encode(image, "BMP"))).numpy() == 128).all()
    palette = encode(Image.new("RGB", (9, 5), COLOUR).convert("P"), "BMP")
    with pytest.raises(tf.errors.InvalidArgumentError, match="a BMP with a palette"):
        graph(tf.constant(palette))


@pytest.mark.parametrize("mode", ["RGB", "RGBA"])
def test_an_exported_graph_takes_no_animation_that_tensorflow_writes_out_of_bounds(mode):
    frames = [Image.new(mode, (40, 30), colour) for colour in ("red", "green", "blue")]
    if mode == "RGBA":
        frames[0].putalpha(9)
    content = io.BytesIO()
    frames[0].save(content, "WEBP", save_all=True, append_images=frames[1:], lossless=True)
    graph = tf.function(decode, input_signature=[tf.TensorSpec([], tf.string)])
    if mode == "RGBA":
        assert graph(tf.constant(content.getvalue())).shape == (30, 40, 3)
        return
    for _ in range(3):
        with pytest.raises(tf.errors.InvalidArgumentError, match="an animated WebP"):
            graph(tf.constant(content.getvalue()))

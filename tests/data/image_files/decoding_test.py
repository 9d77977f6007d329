"""Pictures become RGB whatever their kind is, and what cannot be decoded is named."""

import io

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from tests.data.image_files.pictures import KINDS, encode
from towers.data.image_files.decoding import decode, examine

COLOUR = (200, 100, 40)


@pytest.mark.parametrize("_, mode, kind", KINDS)
def test_every_kind_becomes_rgb(_, mode, kind):
    image = Image.new("RGB", (30, 20), COLOUR).convert(mode)
    encoded = encode(image, kind)
    picture = examine(encoded)
    assert (picture.height, picture.width, picture.is_jpeg) == (20, 30, kind == "JPEG")
    pixels = decode(tf.constant(encoded)).numpy()
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
        (b"no picture", "Unknown image file format"),
        (encode(Image.new("RGB", (9, 9)), "JPEG")[:-30], "Invalid JPEG data"),
        (encode(Image.new("RGB", (9, 9)), "PNG")[:40], "PNG"),
        (encode(Image.new("RGB", (9, 9), COLOUR).convert("P"), "BMP"), "palette"),
        (encode(Image.new("1", (9, 9)), "BMP"), "palette"),
    ],
)
def test_what_cannot_be_decoded_is_said_in_a_few_words(encoded, reason):
    with pytest.raises(ValueError, match=reason) as error:
        examine(encoded)
    assert len(str(error.value)) < 120 and "\n" not in str(error.value)


def test_a_grey_bitmap_is_no_palette():
    encoded = encode(Image.new("L", (9, 9), 77), "BMP")
    examine(encoded)
    assert set(np.unique(decode(tf.constant(encoded)))) == {77}

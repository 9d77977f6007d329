"""Pictures that once were misread in silence, as a network sees them, by kind."""

import io

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from towers.data.image_files.decoding import Look, decode
from towers.data.image_files.image_files import open_image_files

SIDE = 32


def plain(name, number):
    """Returns the levels of a picture of bars that lie or stand, uint8 [SIDE, SIDE]."""
    bars = np.zeros([SIDE, SIDE], np.uint8)
    bars[number % 5 :: 8] = bars[number % 5 + 1 :: 8] = 255
    return bars if name == "lying" else bars.T


def turned(levels, number):
    """Half of them are stored turned, with the tag that says so."""
    exif = Image.Exif()
    exif[0x0112] = 6 if number % 2 else 1
    return Image.fromarray(np.rot90(levels) if number % 2 else levels), "JPEG", {"exif": exif}


def clear(levels, number):
    """Black on transparent black, and for some on a transparent colour or in grey."""
    pixels = np.zeros([SIDE, SIDE, 4], np.uint8)
    pixels[levels == 255, 3] = 255
    pixels[levels == 0, :3] = 90 * (number % 2)
    image = Image.fromarray(pixels, "RGBA")
    return (image if number % 3 else image.convert("LA")), "PNG", {}


def deep(levels, number):
    """Twelve bits in sixteen; one picture alone has the highest level."""
    highest = 4095 if number == 0 else 2000
    return Image.fromarray(levels.astype(np.uint16) // 255 * highest), "PNG", {}


def framed(levels, number):
    """An animation whose first frame counts."""
    frames = [Image.fromarray(levels), Image.fromarray(255 - levels)]
    options = {"save_all": True, "append_images": frames[1:]}
    return frames[0], "GIF" if number % 2 else "WEBP", options | {"lossless": number % 2 == 0}


def paletted(levels, number):
    """A palette whose indices are not its levels."""
    image = Image.fromarray((levels > 0).astype(np.uint8) + 3, "P")
    image.putpalette([9, 9, 9] * 3 + [0, 0, 0, 255, 255, 255])
    return image, ("BMP", "PNG", "GIF", "TIFF")[number % 4], {}


def inverted(levels, number):
    """Inks, whose levels grow as the picture becomes darker."""
    return Image.fromarray(levels).convert("RGB").convert("CMYK"), ("JPEG", "TIFF")[number % 2], {}


@pytest.mark.parametrize(
    "kind, said",
    [
        (turned, "4 turned upright"),
        (clear, "8 put on the background"),
        (deep, "8 of 16 bits scaled by 4095"),
        (framed, "8 rewritten"),
        (paletted, "6 rewritten"),
        (inverted, "4 rewritten"),
    ],
)
def test_a_network_sees_what_a_viewer_shows(kind, said, tmp_path):
    drawn = {}
    for name in ("lying", "upright"):
        (tmp_path / "all" / name).mkdir(parents=True)
        for number in range(4):
            levels = plain(name, number)
            image, form, options = kind(levels, number)
            content = io.BytesIO()
            image.save(content, form, **options)
            suffix = {"TIFF": ".tif"}.get(form, f".{form.lower()}")
            path = tmp_path / "all" / name / f"{number}{suffix}"
            path.write_bytes(content.getvalue())
            drawn[str(path)] = levels
    files = open_image_files(tmp_path / "all", tmp_path / "cache")
    assert said in "\n".join(files.summary) and not files.broken
    look = Look(highest=files.highest)
    for part in files.parts.values():
        for row, path in enumerate(part.paths):
            pixels = decode(tf.constant(part.picture(row)), look).numpy()
            expected = np.float32(255 - drawn[path] if kind is clear else drawn[path])
            if kind is deep and not path.endswith("/0.png"):
                expected *= 2000 / 4095
            assert pixels.shape == (SIDE, SIDE, 3)
            assert np.abs(pixels - expected[..., None]).mean() < 4, path

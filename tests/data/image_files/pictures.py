"""Folders of small pictures of several kinds and sizes, some of them broken."""

import io
from pathlib import Path

import numpy as np
from PIL import Image

CLASSES = {"red things": (200, 40, 40), "绿色": (40, 200, 40), "blue": (40, 40, 200)}
# How each picture of a class is named, and the mode and the format in which it is written.
KINDS = (
    ("a b {}.jpg", "RGB", "JPEG"),
    ("图 {}.png", "RGB", "PNG"),
    ("{}.webp", "RGB", "WEBP"),
    ("{}.bmp", "RGB", "BMP"),
    ("{}.gif", "RGB", "GIF"),
    ("cmyk{}.jpeg", "CMYK", "JPEG"),
    ("grey{}.JPG", "L", "JPEG"),
    ("clear{}.png", "RGBA", "PNG"),
)
# Those of which TensorFlow's decoders make what viewers show: no others are traced for them.
PLAIN_KINDS = tuple(
    (pattern, mode, kind)
    for pattern, mode, kind in KINDS
    if mode != "RGBA" and kind not in ("BMP", "GIF")
)
NUM_BROKEN = 3  # In each class.


def write_pictures(
    folder: Path, count: int = 8, classes=tuple(CLASSES), broken: bool = True, kinds=KINDS
):
    """Writes so many pictures of noise around a colour for each class, 20 to 60 pixels a side."""
    random = np.random.default_rng(0)
    for name in classes:
        (folder / name).mkdir(parents=True)
        for number in range(count):
            pattern, mode, kind = kinds[number % len(kinds)]
            height, width = random.integers(20, 60, 2)
            pixels = random.normal(CLASSES[name], 30, (height, width, 3)).clip(0, 255)
            content = encode(Image.fromarray(pixels.astype(np.uint8)).convert(mode), kind)
            (folder / name / pattern.format(number)).write_bytes(content)
        if broken:
            whole = encode(Image.new("RGB", (40, 40), CLASSES[name]), "JPEG")
            (folder / name / "cut off.jpg").write_bytes(whole[: len(whole) // 2])
            (folder / name / "text.png").write_bytes(b"no picture")
            (folder / name / "empty.webp").write_bytes(b"")
            (folder / name / "notes.txt").write_text("ignored")


def encode(image: Image.Image, kind: str) -> bytes:
    """Returns the bytes of a picture file."""
    content = io.BytesIO()
    image.save(content, kind)
    return content.getvalue()

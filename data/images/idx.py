"""The IDX files of MNIST and Fashion-MNIST.

Format: yann.lecun.com/exdb/mnist. A big-endian int32 magic number (0x08 for unsigned bytes, then
the number of dimensions), one int32 for each dimension, and the bytes in row-major order.
"""

from __future__ import annotations

import math
import struct
from pathlib import Path

import numpy as np

from towers.data.fetching.files import find_file, read_bytes
from towers.data.images.image_set import ImageSet
from towers.ground.arguments import check_choice

CLASS_NAMES = {
    "mnist": ("0", "1", "2", "3", "4", "5", "6", "7", "8", "9"),
    "fashion_mnist": (
        "T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag",
        "Ankle boot",
    ),
}  # fmt: skip
SIZE = 28, 28  # Of their images: height and width.
FILE_PREFIXES = {"train": "train", "test": "t10k"}


def load(folder: str | Path, split: str, *, name: str = "mnist") -> ImageSet:
    """Returns the images, uint8 [n, 28, 28, 1], and labels of a split.

    Args:
        folder: of the files, under their published names, gzipped or not.
        split: train or test.
        name: mnist or fashion_mnist, which have the same file names but different classes.

    Raises:
        FileNotFoundError: a file is missing.
        ValueError: a file does not have the format.
    """
    check_choice("split", split, FILE_PREFIXES)
    check_choice("name", name, CLASS_NAMES)
    images_path = _find(Path(folder), split, "images", num_dimensions=3, name=name)
    labels_path = _find(Path(folder), split, "labels", num_dimensions=1, name=name)
    images = read_idx(images_path, num_dimensions=3)
    if images.shape[1:] != SIZE:
        height, width = images.shape[1:]
        raise ValueError(
            f"{images_path}: expected images of 28 x 28 pixels, found {height} x {width}. `towers "
            "train images` takes picture files of any size."
        )
    labels = read_idx(labels_path, num_dimensions=1)
    if labels.max() >= len(CLASS_NAMES[name]):
        raise ValueError(
            f"{labels_path}: expected labels in 0..{len(CLASS_NAMES[name]) - 1}, found "
            f"{labels.max()} at index {np.argmax(labels)}."
        )
    if len(images) != len(labels):
        raise ValueError(
            f"{labels_path}: expected {len(images)} labels, as many as {images_path.name} has "
            f"images, found {len(labels)}."
        )
    return ImageSet(images[..., np.newaxis], labels.astype(np.int32), CLASS_NAMES[name])


def read_idx(path: Path, *, num_dimensions: int) -> np.ndarray:
    """Returns the uint8 array of an IDX file; ValueError for another number of dimensions."""
    content = read_bytes(path)
    header_size = 4 * (1 + num_dimensions)
    if len(content) < header_size:
        raise ValueError(
            f"{path}: expected an IDX header of {header_size} bytes, found {len(content)} bytes."
        )
    magic, *shape = struct.unpack_from(f">{1 + num_dimensions}I", content)
    if magic != 0x0800 + num_dimensions:
        raise ValueError(
            f"{path}: expected the magic number {0x0800 + num_dimensions} of unsigned bytes in "
            f"{num_dimensions} dimensions, found {magic}."
        )
    num_values, found = math.prod(shape), len(content) - header_size
    if found != num_values or not num_values:
        raise ValueError(
            f"{path}: expected {num_values} bytes after the header, since it states the shape "
            f"{shape}, and at least one; found {found}."
        )
    return np.frombuffer(content, np.uint8, offset=header_size).reshape(shape)


def _find(folder: Path, split: str, content: str, *, num_dimensions: int, name: str) -> Path:
    prefix = f"{FILE_PREFIXES[split]}-{content}"
    names = [f"{prefix}{separator}idx{num_dimensions}-ubyte" for separator in "-."]
    return find_file(folder, names, remedy=f"Get it by `towers download {name}`.")

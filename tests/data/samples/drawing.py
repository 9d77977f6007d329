"""Draws the embedded image set: ten kinds of shapes in the format of CIFAR-10.

    python -m tests.data.samples.drawing FOLDER

Each image is one shape of random place, size, angle, colours and texture on a textured background,
with some noisy pixels.
"""

from __future__ import annotations

import argparse
import gzip
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from towers.ground.random_numbers import generator

SIZE = 32
FILES = {
    "data_batch_1.bin.gz": (2000, 1),
    "test_batch.bin.gz": (500, 2),
}  # Images, seed.
LEVELS = np.array([32, 96, 160, 224], dtype=np.uint8)  # Few, for small files.
NOISE = 0.01  # The fraction of pixels with a random colour.


def main(arguments: Sequence[str] | None = None) -> None:
    """Writes the files into the folder on the command line."""
    parser = argparse.ArgumentParser(description="Draws the embedded image set again.")
    parser.add_argument("folder", type=Path, help="folder of the files")
    write(parser.parse_args(arguments).folder)


def write(output_folder: Path) -> None:
    """Writes the training file, the test file and the class names, always the same bytes."""
    output_folder.mkdir(parents=True, exist_ok=True)
    for name, (num_images, seed) in FILES.items():
        content = gzip.compress(records(num_images, seed=seed), compresslevel=9, mtime=0)
        (output_folder / name).write_bytes(content)
    (output_folder / "batches.meta.txt").write_text("\n".join(CLASS_NAMES) + "\n")


def records(num_images: int, *, seed: int) -> bytes:
    """Returns CIFAR-10 records: a label byte and the red, green and blue planes of each image."""
    images, labels = draw(num_images, seed=seed)
    planes = images.transpose(0, 3, 1, 2).reshape(num_images, -1)
    return np.concatenate([labels[:, np.newaxis], planes], axis=1).tobytes()


def draw(num_images: int, *, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns images, uint8 [n, 32, 32, 3], and labels, uint8 [n], equally many of each class."""
    random = generator(seed)
    labels = np.argsort(random.random(num_images)).astype(np.int64) % len(CLASS_NAMES)
    inside = shape_masks(labels, random)
    background, foreground = colours(num_images, random)
    levels = np.where(
        inside[..., np.newaxis],
        textured(foreground, textures(num_images, random)),
        textured(background, textures(num_images, random)),
    )
    noisy = random.random(inside.shape) < NOISE
    levels[noisy] = uniform_integers(random, (int(noisy.sum()), 3), len(LEVELS))
    return LEVELS[levels], labels.astype(np.uint8)


def shape_masks(labels: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """Returns bool [n, 32, 32], True inside the shape of each label, at a random pose."""
    num_images = len(labels)
    radius = between(random, 10.0, 13.0, num_images)
    centers = between(random, -3.0, 3.0, (2, num_images))
    across, down = pixel_grid(centers, between(random, 0.0, 2.0 * np.pi, num_images))
    x, y = across / radius[:, None, None], down / radius[:, None, None]
    masks = np.empty(x.shape, dtype=bool)
    for label, shape in enumerate(SHAPES.values()):
        chosen = labels == label
        masks[chosen] = shape(x[chosen], y[chosen])
    return masks


def pixel_grid(centers: np.ndarray, angles: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns the pixels' coordinates in moved and rotated axes, float64 [n, 32, 32] each."""
    line = np.arange(SIZE) - (SIZE - 1) / 2
    x = line[np.newaxis, np.newaxis, :] - centers[0][:, None, None]
    y = line[np.newaxis, :, np.newaxis] - centers[1][:, None, None]
    cosine, sine = np.cos(angles)[:, None, None], np.sin(angles)[:, None, None]
    return x * cosine + y * sine, y * cosine - x * sine


def cross(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    shorter, longer = np.minimum(np.abs(x), np.abs(y)), np.maximum(np.abs(x), np.abs(y))
    return (shorter < 0.23) & (longer < 0.95)


def star(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Five points: a triangle, mirrored into ten sectors."""
    sector = np.pi / 5
    angle = np.abs((np.arctan2(y, x) + sector) % (2 * sector) - sector)
    along, aside = np.hypot(x, y) * np.cos(angle), np.hypot(x, y) * np.sin(angle)
    inner_along, inner_aside = 0.45 * np.cos(sector), 0.45 * np.sin(sector)
    return (1.05 - along) * inner_aside > aside * (1.05 - inner_along)


def heart(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    lobes = np.hypot(np.abs(x) - 0.45, y + 0.4) < 0.45
    tip = (y > -0.25) & (np.abs(x) < 0.7 * (0.95 - y))
    return lobes | tip


# Whether points are inside, in the order of the labels.
SHAPES: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "disc": lambda x, y: np.hypot(x, y) < 0.85,
    "ring": lambda x, y: np.abs(np.hypot(x, y) - 0.75) < 0.2,
    "square": lambda x, y: np.maximum(np.abs(x), np.abs(y)) < 0.7,
    "triangle": lambda x, y: np.maximum(y, np.sqrt(0.75) * np.abs(x) - 0.5 * y) < 0.5,
    "cross": cross,
    "star": star,
    "crescent": lambda x, y: (np.hypot(x, y) < 0.95) & (np.hypot(x - 0.5, y) > 0.75),
    "heart": heart,
    "bars": lambda x, y: (
        (np.maximum(np.abs(x), np.abs(y)) < 0.85) & (np.abs(np.abs(y) - 0.34) > 0.17)
    ),
    "bowtie": lambda x, y: (np.abs(x) < 0.85) & (np.abs(y) < 0.9 * np.abs(x)),
}
CLASS_NAMES = tuple(SHAPES)


def colours(num_images: int, random: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Returns two colours of the background and two of the shape, int [n, 2, 3] of levels.

    A shape is lighter or darker than its background in most channels; the second colour of each
    differs from the first in one channel.
    """
    dark = uniform_integers(random, (num_images, 3), 2)
    light = 2 + uniform_integers(random, (num_images, 3), 2)
    swapped = random.random(num_images)[:, None] < 0.5
    first = np.where(swapped, light, dark), np.where(swapped, dark, light)
    return second_colour(first[0], random), second_colour(first[1], random)


def second_colour(first: np.ndarray, random: np.random.Generator) -> np.ndarray:
    channel = uniform_integers(random, (len(first), 1), 3)
    changed = np.arange(3) == channel
    return np.stack([first, np.where(changed, first ^ 1, first)], axis=1)


def textures(num_images: int, random: np.random.Generator) -> np.ndarray:
    """Returns int [n, 32, 32] of 0 and 1: plain, horizontal or vertical stripes, or checks."""
    rows, columns = np.arange(SIZE)[:, None], np.arange(SIZE)[None, :]
    period = (2 + uniform_integers(random, (num_images,), 4))[:, None, None]
    kind = uniform_integers(random, (num_images,), 4)
    patterns = [
        np.zeros((num_images, SIZE, SIZE), dtype=np.int64),
        (rows + 0 * columns) // period % 2,
        (columns + 0 * rows) // period % 2,
        (rows // period + columns // period) % 2,
    ]
    return np.stack(patterns)[kind, np.arange(num_images)]


def textured(pair: np.ndarray, texture: np.ndarray) -> np.ndarray:
    """Returns int [n, 32, 32, 3]: at each pixel the first colour for 0, the second for 1."""
    first, second = pair[:, 0, None, None], pair[:, 1, None, None]
    return np.where(texture[..., np.newaxis] == 1, second, first)


def between(
    random: np.random.Generator, low: float, high: float, shape: int | tuple[int, ...]
) -> np.ndarray:
    return low + (high - low) * random.random(shape)


def uniform_integers(random: np.random.Generator, shape: tuple[int, ...], limit: int) -> np.ndarray:
    """Returns integers below the limit, made from uniform numbers, whose stream never changes."""
    return (random.random(shape) * limit).astype(np.int64)


if __name__ == "__main__":
    main()

"""The binary files of CIFAR-10.

Format: www.cs.toronto.edu/~kriz/cifar.html. Each record is a label byte and 3072 bytes of pixels,
the red, green and blue planes of 32 rows of 32.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from towers.data.fetching.files import find_file, find_optional_file, read_bytes
from towers.data.images.image_set import ImageSet
from towers.ground.arguments import check_choice

CLASS_NAMES = (
    "airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck",
)  # fmt: skip
SIZE, CHANNELS = 32, 3
RECORD_SIZE = 1 + CHANNELS * SIZE * SIZE
SUBFOLDER = "cifar-10-batches-bin"
REMEDY = "Get it by `towers download cifar10`."


def load(folder: str | Path, split: str) -> ImageSet:
    """Returns the images, uint8 [n, 32, 32, 3], and labels of a split.

    Args:
        folder: of the files, gzipped or not, or of their unpacked archive. Some of the five
            training files may be missing, but not all.
        split: train or test.

    Raises:
        FileNotFoundError: there is no file of the split.
        ValueError: a file does not have the format.
    """
    check_choice("split", split, ("train", "test"))
    folder = Path(folder)
    if (folder / SUBFOLDER).is_dir():
        folder = folder / SUBFOLDER
    names = ["test_batch.bin"]
    if split == "train":
        names = [f"data_batch_{index}.bin" for index in range(1, 6)]
    found = (find_optional_file(folder, [name]) for name in names)
    paths = list(filter(None, found)) or [find_file(folder, names[:1], remedy=REMEDY)]
    records = np.concatenate([read_records(path) for path in paths])
    planes = records[:, 1:].reshape(-1, CHANNELS, SIZE, SIZE)
    images = np.ascontiguousarray(planes.transpose(0, 2, 3, 1))
    return ImageSet(images, records[:, 0].astype(np.int32), _class_names(folder))


def read_records(path: Path) -> np.ndarray:
    """Returns the records of a file, uint8 [n, 3073]; ValueError for labels out of range."""
    content = read_bytes(path)
    if not content or len(content) % RECORD_SIZE:
        raise ValueError(
            f"{path}: expected one or more whole records of {RECORD_SIZE} bytes, found "
            f"{len(content)} bytes."
        )
    records = np.frombuffer(content, np.uint8).reshape(-1, RECORD_SIZE)
    labels = records[:, 0]
    if np.max(labels) >= len(CLASS_NAMES):
        raise ValueError(
            f"{path}: expected labels in 0..{len(CLASS_NAMES) - 1}, found {np.max(labels)} in "
            f"record {np.argmax(labels)}."
        )
    return records


def _class_names(folder: Path) -> tuple[str, ...]:
    """Returns the lines of `batches.meta.txt`, or the official names without that file."""
    path = folder / "batches.meta.txt"
    if not path.is_file():
        return CLASS_NAMES
    names = tuple(
        line.strip() for line in path.read_text(encoding="utf-8").splitlines() if line.strip()
    )
    if len(names) != len(CLASS_NAMES):
        raise ValueError(
            f"{path}: expected {len(CLASS_NAMES)} class names, found {len(names)}: "
            f"{', '.join(names)}."
        )
    return names

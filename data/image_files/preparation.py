"""Record files of an image set: a few large files instead of many small ones, read at any place."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import tensorflow as tf

from towers.data.image_files.decoding import USUAL, Look, decode
from towers.data.image_files.image_files import ImageFiles, Part
from towers.data.image_files.records import CLASS_NAMES, lines_of_names, make_record, write_records
from towers.data.prepared.caches import open_or_prepare
from towers.ground.cores import num_cores
from towers.ground.durable import write_file
from towers.ground.progress import progress

EXAMPLES_OF_SHARD = 1000
AT_A_TIME = 64  # Records that are in memory.
QUALITY = 95  # Of pictures that are made smaller and encoded again as JPEG.


@dataclasses.dataclass
class Prepared:
    """A folder of record files, which `--data` takes as it is, lines about it, and its pictures."""

    folder: Path
    summary: list[str]
    image_files: ImageFiles

    @property
    def facts(self) -> dict[str, Any]:
        """The numbers of pictures."""
        return {"pictures": {name: len(part) for name, part in self.image_files.parts.items()}}

    def remarks(self, fields: Any) -> list[str]:
        """Returns what the summary does not say: nothing."""
        return []

    def examples(self, number: int) -> list[dict[str, Any]]:
        """Returns the first pictures of each part in turn: `file`, `label` and `part`."""
        parts, names = self.image_files.parts.items(), self.image_files.class_names
        rows = ((n, one, row) for row in range(number) for n, one in parts if row < len(one))
        return [
            {
                "file": one.names[row],
                "label": " ".join(names[label] for label in one.labels[row]),
                "part": part,
            }
            for part, one, row in itertools.islice(rows, number)
        ]


def prepare_records(
    image_files: ImageFiles,
    cache: Path,
    *,
    stored_side: int = 0,
    background: int = USUAL.background,
    threads: int | None = None,
    write: Callable[[str], None] = print,
) -> Prepared:
    """Writes TFRecord files with every picture of an image set, in its order.

    A killed preparation continues with the file that it was writing. The folder has its name once
    everything is on the disk.

    Args:
        image_files: the image set.
        cache: the folder in which the new one is made, named by the digest of the pictures.
        stored_side: shorter side to which larger pictures are reduced; 0 keeps their bytes, and
            so the training's data key.
        background: grey level that smaller pictures get behind what is transparent.
        threads: that read; by default one per core.
        write: called with the lines of the summary.

    Raises:
        ValueError: the names of the classes cannot be written, or a picture has changed.
        OSError: something cannot be written; the files that are whole stay.
    """
    names = lines_of_names(image_files.class_names)  # What cannot be written is refused at once.
    total = sum(len(part) for part in image_files.parts.values())
    look = Look(background, image_files.highest)

    def open_folder(folder: Path) -> Prepared:
        if not (folder / CLASS_NAMES).is_file():  # It is written last.
            raise ValueError(f"{folder} lacks {CLASS_NAMES}.")
        return Prepared(folder, image_files.summary, image_files)

    def fill(folder: Path, _: Path) -> None:
        bar = progress(total, "writing records", "record")
        with ThreadPoolExecutor(threads or num_cores()) as pool, bar:
            for name, part in image_files.parts.items():
                for path, rows in shards_of(folder / name, len(part)):
                    if not path.is_file():
                        make = functools.partial(
                            record_of, part, stored_side=stored_side, look=look
                        )
                        write_records(path, in_order(pool, make, rows))
                    bar.update(len(rows))
        write_file(folder / CLASS_NAMES, names)

    folder = cache / f"images-{image_files.key}{f'-{stored_side}' if stored_side else ''}"
    return open_or_prepare(folder, open_folder, fill, write, "record files")


def shards_of(stem: Path, num_examples: int) -> Iterator[tuple[Path, range]]:
    """Yields the path of each record file of a part, and the rows that it holds."""
    count = -(-num_examples // EXAMPLES_OF_SHARD)
    for number in range(count):
        first = number * EXAMPLES_OF_SHARD
        rows = range(first, min(first + EXAMPLES_OF_SHARD, num_examples))
        yield Path(f"{stem}-{number:05}-of-{count:05}.tfrecord"), rows


def in_order(
    pool: ThreadPoolExecutor, make: Callable[[int], bytes], rows: range
) -> Iterator[bytes]:
    """Yields the record of each row; few are in memory at a time."""
    for first in range(0, len(rows), AT_A_TIME):
        yield from pool.map(make, rows[first : first + AT_A_TIME])


def record_of(part: Part, row: int, *, stored_side: int, look: Look) -> bytes:
    """Returns the record of an example."""
    encoded = reduced(part.picture(row), stored_side, look) if stored_side else b""
    return make_record(encoded or part.encoded(row), part.labels[row], part.names[row])


def reduced(encoded: bytes, side: int, look: Look) -> bytes:
    """Returns a picture whose shorter side is `side`, as JPEG; nothing for a smaller one."""
    pixels = decode(tf.constant(encoded), look)
    height, width, _ = pixels.shape
    if min(height, width) <= side:
        return b""
    scale = side / min(height, width)
    extent = [max(side, round(height * scale)), max(side, round(width * scale))]
    small = tf.image.resize(pixels, extent, method="area")
    levels = tf.cast(tf.clip_by_value(tf.round(small), 0, 255), tf.uint8)
    return tf.io.encode_jpeg(levels, quality=QUALITY).numpy()

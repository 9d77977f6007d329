"""The examples of an image set, where their bytes are, and the records of files that hold many.

A record is a `tf.train.Example` with `image/encoded` and `image/class/label`, as the scripts for
ImageNet write them, or with `image` and `label`, as TensorFlow Datasets does. The files are
TFRecord (tensorflow.org/tutorials/load_data/tfrecord) or ArrayRecord, whose records are read by
their number with the library `array_record` (github.com/google/array_record).
"""

from __future__ import annotations

import functools
import os
import re
import struct
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import tensorflow as tf

from towers.data.folders import PART_NAMES, TRAIN, open_file
from towers.ground.durable import PARTIAL, publish
from towers.ground.extras import import_extra

ENCODED, LABEL, NAME = "image/encoded", "image/class/label", "image/filename"
OTHER_ENCODED, OTHER_LABEL = "image", "label"
CLASS_NAMES = "labels.txt"
NAME_FILES = (CLASS_NAMES, "label.labels.txt")
SHARDED = re.compile(r".+-\d{5}-of-\d{5}(\.tfrecords?)?$")
PART = re.compile(rf"(?:^|[-_./])({'|'.join(PART_NAMES)})(?=[-_./])")
LENGTH, CHECKSUM = struct.Struct("<Q"), 4
HEADER = LENGTH.size + CHECKSUM
ARRAY_RECORD = re.compile(r"\.array_?record(-\d{5}-of-\d{5})?$", re.IGNORECASE)
OPEN_FILES = 256
READER_OPTIONS = "readahead_buffer_size:0"  # Without reading ahead, a record costs one read.


class Example(NamedTuple):
    """One example.

    Attributes:
        name: as messages show it: the path below the folder, of a record with its number.
        path: the file.
        labels: the names of its classes; None if they stand in the record.
        part: train, validation or test; None if a fraction is held out by name.
        offset: where its record begins in the file, in bytes; for ArrayRecord the record's number.
        length: bytes of the record; None for the whole file, 0 for ArrayRecord.
    """

    name: str
    path: Path
    labels: tuple[str, ...] | None
    part: str | None
    offset: int = 0
    length: int | None = None


def is_record_file(path: Path) -> bool:
    """Returns whether a file's name is that of TFRecord or ArrayRecord."""
    is_named = path.suffix.lower() in (".tfrecord", ".tfrecords") or SHARDED.match(path.name)
    return bool(is_named or is_array_record(path)) and path.is_file()


def list_records(paths: Sequence[Path], names: Sequence[str] = ()) -> Iterator[Example]:
    """Yields the records of files, whose names say to which part they belong.

    Only the length of each record is read, or how many there are. The labels stand in the records.

    Args:
        paths: of the files.
        names: of the files, if they are not those of their paths.

    Raises:
        ValueError: a file is cut off, or needs a library that is not installed.
    """
    names = names or [path.name for path in paths]
    parts = [part_of(name) for name in names]
    for path, name, part in zip(paths, names, parts, strict=True):
        # Where there is no other part, a fraction of train is held out.
        part = None if {*parts} == {TRAIN} else part
        for number, (offset, length) in enumerate(find_records(path)):
            yield Example(f"{name}#{number}", path, None, part, offset, length)


def part_of(name: str) -> str | None:
    """Returns the part that the name of a record file says last, or None."""
    names = PART.findall(name.lower())
    return PART_NAMES[names[-1]] if names else None


def find_records(path: Path) -> Iterator[tuple[int, int]]:
    """Yields where each record's bytes begin, and how many they are.

    For ArrayRecord, whose records are found by their number, it is that number and 0.
    """
    if is_array_record(path):
        yield from ((number, 0) for number in range(num_records(path)))
        return
    size, position = path.stat().st_size, 0
    with path.open("rb", buffering=HEADER) as file:
        while position < size:
            header = os.pread(file.fileno(), HEADER, position)
            length = LENGTH.unpack_from(header)[0] if len(header) == HEADER else size
            end = position + HEADER + length + CHECKSUM
            if end > size:
                raise ValueError(
                    f"{path} is cut off, or is no TFRecord file: the record at byte {position} "
                    f"would end at byte {end} of {size}."
                )
            yield position + HEADER, length
            position = end


def read_picture(
    path: str | os.PathLike[str], offset: int, length: int | None
) -> tuple[bytes, tuple[str, ...] | None]:
    """Returns the bytes of an example's picture, and the labels of its record, None without one.

    Raises:
        OSError: the file cannot be read.
        ValueError: the record is cut off, or holds no picture.
    """
    content = read_bytes(path, offset, length)
    return (content, None) if length is None else parse_record(content)


def read_bytes(path: str | os.PathLike[str], offset: int, length: int | None) -> bytes:
    """Returns the bytes of an example: a record of a file, or the whole of it."""
    if length is not None and is_array_record(path):
        return read_record(path, offset)
    with open_file(path) as file:
        if length is None:
            return file.read()
        found = os.pread(file.fileno(), length, offset)
    if len(found) != length:
        raise ValueError(
            f"{path} has been cut off since it was checked: the record at byte {offset} has "
            f"{len(found)} bytes, expected {length}."
        )
    return found


def parse_record(record: bytes) -> tuple[bytes, tuple[str, ...]]:
    """Returns a record's picture and its labels, as texts; ValueError if it has none."""
    try:
        features = tf.train.Example.FromString(record).features.feature
    except Exception as error:  # Protobuf's own kind differs from version to version.
        raise ValueError("the record is no tf.train.Example") from error
    is_other = ENCODED not in features and OTHER_ENCODED in features
    pictures = features[OTHER_ENCODED if is_other else ENCODED].bytes_list.value
    labels = features[OTHER_LABEL if is_other else LABEL].int64_list.value
    if len(pictures) != 1:
        raise ValueError(
            f"the record has {len(pictures)} values of {ENCODED} or {OTHER_ENCODED} instead of one"
        )
    return pictures[0], tuple(map(str, labels))


def make_record(encoded: bytes, labels: Sequence[int], name: str) -> bytes:
    """Returns the record of a picture."""
    feature = {
        ENCODED: tf.train.Feature(bytes_list=tf.train.BytesList(value=[encoded])),
        LABEL: tf.train.Feature(int64_list=tf.train.Int64List(value=labels)),
        NAME: tf.train.Feature(bytes_list=tf.train.BytesList(value=[os.fsencode(name)])),
    }
    return tf.train.Example(features=tf.train.Features(feature=feature)).SerializeToString(
        deterministic=True
    )


def class_names_beside(path: Path) -> tuple[str, ...] | None:
    """Returns the names in `labels.txt` in the folder, by their numbers; None if it is not there.

    Its lines are names, or all are `number:name`, as TF-Slim writes them, in any order.
    TensorFlow Datasets calls the file `label.labels.txt`.

    Raises:
        ValueError: the file is not UTF-8.
    """
    folder = path if path.is_dir() else path.parent
    files = [folder / name for name in NAME_FILES]
    file = next((file for file in files if file.is_file()), None)
    if file is None:
        return None
    try:
        text = file.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"{file} is not in UTF-8 ({error.reason}). Save it as UTF-8.") from error
    lines = text.replace("\r\n", "\n").rstrip("\n").split("\n")
    numbered = dict(line.split(":", 1) for line in lines if re.match(r"\d+:", line))
    numbers = [str(number) for number in range(len(lines))]
    if numbered.keys() == set(numbers):
        return tuple(numbered[number] for number in numbers)
    return tuple(lines)


def write_records(path: Path, records: Iterable[bytes]) -> None:
    """Writes a record file, whole or not at all."""
    partial = path.with_name(f".{path.name}{PARTIAL}")
    with tf.io.TFRecordWriter(str(partial)) as writer:
        for record in records:
            writer.write(record)
    publish(partial, path)


def lines_of_names(names: Sequence[str]) -> bytes:
    """Returns the content of `labels.txt`; ValueError for a name that it cannot hold."""
    for name in names:
        if re.search("[\n\r\ud800-\udfff]", name):  # Bytes that are no UTF-8 are surrogates.
            raise ValueError(
                f"The class {name!r} has characters that a file of names cannot hold. Rename it."
            )
    return "".join(f"{number}:{name}\n" for number, name in enumerate(names)).encode()


def is_array_record(path: str | os.PathLike[str]) -> bool:
    """Returns whether a file's name is that of ArrayRecord."""
    return ARRAY_RECORD.search(os.fspath(path)) is not None


def num_records(path: str | os.PathLike[str]) -> int:
    """Returns the number of records of a file.

    Raises:
        OSError: it cannot be read.
        ValueError: it is cut off, or the library is not installed.
    """
    _reader.cache_clear()  # A file of the same name may be another one by now.
    return _reader(os.fspath(path)).num_records()


def read_record(path: str | os.PathLike[str], number: int) -> bytes:
    """Returns a record; errors as of `num_records`, ValueError also if its bytes were changed."""
    try:
        return _reader(os.fspath(path)).read([number])[0]
    except (RuntimeError, IndexError) as error:
        raise ValueError(f"record {number} cannot be read: {str(error)[:100]}") from error


@functools.lru_cache(OPEN_FILES)
def _reader(path: str) -> Any:
    module = import_extra(
        "array_record.python.array_record_module",
        "array_record",
        f"{path} is an ArrayRecord file",
    )
    with open(path, "rb"):  # The library does not say that there is no such file.
        pass
    reader = module.ArrayRecordReader(path, READER_OPTIONS)
    if not reader.ok():
        raise ValueError(
            f"{path} is cut off, or is no ArrayRecord file: it has no list of records at its end."
        )
    return reader

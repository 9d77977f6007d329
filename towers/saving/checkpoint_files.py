"""The checkpoint file: arrays and a small state, written completely or not at all; no pickle.

A checkpoint is an uncompressed zip file in NumPy's .npz form. Its member `manifest` is a JSON
text that names the step, the state and every array; the member `<group>/<number>` is an array.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import io
import json
import math
import os
import struct
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO, Any, BinaryIO, NamedTuple

import keras
import numpy as np
import tensorflow as tf

from towers.ground.cores import num_cores
from towers.ground.durable import PARTIAL, durable_file

FORMAT = "towers checkpoint"
VERSION = 1
MANIFEST = "manifest"

Groups = Mapping[str, Sequence[keras.Variable | tf.Variable]]


class DamagedCheckpointError(ValueError):
    """A file is not a complete checkpoint: it is truncated, altered, or another kind of file."""


class SavedArray(NamedTuple):
    """The value of one variable.

    Attributes:
        path: the variable's path when it was saved, such as `encoder/lstm/kernel`.
        array: its value, with its shape and dtype.
    """

    path: str
    array: np.ndarray


@dataclasses.dataclass(frozen=True, eq=False)
class Checkpoint:
    """The content of a checkpoint file.

    Attributes:
        path: the file.
        step: the step after which it was saved.
        state: other values of the training, of JSON types.
        groups: by group name, the values of the group's variables in order.
        serial: its number among all that were saved in its folder; 0 if it has none.
    """

    path: Path
    step: int
    state: dict[str, Any]
    groups: dict[str, list[SavedArray]]
    serial: int = 0


class Snapshot(NamedTuple):
    """What a checkpoint file will hold: training that goes on does not change it."""

    manifest: bytes
    groups: dict[str, list[SavedArray]]


def take_snapshot(
    step: int, groups: Groups, state: Mapping[str, Any], *, serial: int = 0
) -> Snapshot:
    """Returns the values of this moment; arguments as in `CheckpointFolder.save`.

    On a CPU nothing is copied here: TensorFlow copies a variable that somebody still reads when it
    is written next.

    Args:
        serial: its number among all that were saved in its folder, from 1; 0 for a single file.

    Raises:
        ValueError: a variable holds text.
        TypeError: the state is not JSON.
    """
    saved = {
        name: [SavedArray(path_of(variable), value_of(variable)) for variable in variables]
        for name, variables in groups.items()
    }
    entries = {
        name: [
            {"path": path, "shape": list(array.shape), "dtype": array.dtype.name}
            for path, array in arrays
        ]
        for name, arrays in saved.items()
    }
    training = {"step": int(step), "serial": serial, "state": dict(state)}
    manifest = {"format": FORMAT, "version": VERSION, **training, "groups": entries}
    return Snapshot(json.dumps(manifest).encode(), saved)


def write_snapshot(path: Path, snapshot: Snapshot) -> None:
    """Writes a checkpoint completely or not at all; an OSError leaves an older file unchanged."""
    arrays: dict[str, Any] = {MANIFEST: np.frombuffer(snapshot.manifest, np.uint8)}
    for name, saved in snapshot.groups.items():
        arrays |= {f"{name}/{number}": storable(array) for number, (_, array) in enumerate(saved)}
    with named_failure(path), durable_file(path, path.with_name(path.name + PARTIAL)) as file:
        np.savez(file, **arrays)


def path_of(variable: keras.Variable | tf.Variable) -> str:
    """Returns a variable's path, for manifests and messages."""
    if isinstance(variable, keras.Variable):
        return variable.path
    return variable.name.removesuffix(":0")


def value_of(variable: keras.Variable | tf.Variable) -> np.ndarray:
    """Returns the variable's value of this moment; raises ValueError for strings."""
    if tf.as_dtype(variable.dtype) == tf.string:
        raise ValueError(
            "A checkpoint holds numbers and booleans. Received the variable "
            f"'{path_of(variable)}' of dtype string; put text into the state."
        )
    value = tensorflow_variable(variable).read_value()
    # NumPy takes a tensor's memory as it is, but not that of a scalar of bfloat16.
    return np.asarray(value if value.shape.rank else value.numpy())


def tensorflow_variable(variable: keras.Variable | tf.Variable) -> tf.Variable:
    """Returns the variable itself, without Keras's wrapper."""
    return variable.value if isinstance(variable, keras.Variable) else variable


@contextlib.contextmanager
def named_failure(path: Path) -> Iterator[None]:
    """The scope in which an OSError is raised again with the checkpoint's name."""
    try:
        yield
    except OSError as error:
        is_full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        raise OSError(
            f"Cannot save the checkpoint {path}: {error.strerror or error}. Earlier checkpoints "
            f"are untouched.{' Make room, and run the same again.' if is_full else ''}"
        ) from error


def storable(array: np.ndarray) -> np.ndarray:
    """Returns the array, or its raw bytes if NumPy does not know its dtype, such as bfloat16."""
    if array.dtype.isbuiltin == 1:
        return array
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def read_checkpoint(path: str | os.PathLike[str]) -> Checkpoint:
    """Returns a checkpoint after checking every byte against its checksum.

    Raises:
        DamagedCheckpointError: the file is truncated, altered or not a checkpoint.
    """
    path = Path(path)
    with open(path, "rb") as file, damage_of(path):
        return read_archive(path, file)


def serial_of(path: Path) -> int | None:
    """Returns a checkpoint's serial from its manifest alone; None if that is damaged."""
    try:
        with open(path, "rb") as file, damage_of(path), zipfile.ZipFile(file) as archive:
            return int(read_manifest(archive, file).get("serial", 0))
    except DamagedCheckpointError:
        return None


@contextlib.contextmanager
def damage_of(path: Path) -> Iterator[None]:
    """The scope in which whatever damaged bytes raise becomes a DamagedCheckpointError."""
    try:
        yield
    # All that zipfile, json and NumPy raise for damaged bytes.
    except (
        zipfile.BadZipFile, zlib.error, struct.error, OSError, EOFError, RuntimeError,
        ValueError, LookupError, TypeError, AttributeError, OverflowError,
    ) as error:  # fmt: skip
        cause = (str(error) or type(error).__name__).rstrip(".")
        raise DamagedCheckpointError(f"{path} is not a whole checkpoint: {cause}.") from error


def read_archive(path: Path, file: BinaryIO) -> Checkpoint:
    """Returns the checkpoint in an open zip file; raises all kinds of errors if it is damaged.

    Arrays are read and compared with their checksums on all cores. Their headers, which NumPy
    parses as Python, are not: Python 3.11 raises SystemError where two threads parse at once.
    """
    with zipfile.ZipFile(file) as archive, ThreadPoolExecutor(num_cores()) as pool:
        manifest = read_manifest(archive, file)
        names = [
            (f"{name}/{number}", entry)
            for name, entries in manifest["groups"].items()
            for number, entry in enumerate(entries)
        ]
        # Not opened by threads: Python 3.13.0 seeks wrongly where one opens while another reads.
        contents = pool.map(read_member, [archive.open(f"{name}.npy") for name, _ in names])
        arrays = (array_in(content, *named) for content, named in zip(contents, names, strict=True))
        groups = {
            name: [SavedArray(entry["path"], next(arrays)) for entry in entries]
            for name, entries in manifest["groups"].items()
        }
    serial = int(manifest.get("serial", 0))  # Checkpoints of earlier versions have none.
    return Checkpoint(path, manifest["step"], manifest["state"], groups, serial)


def read_member(member: IO[bytes]) -> bytes:
    """Returns what an open member holds, compared with its checksum."""
    with member:
        return member.read()


def read_manifest(archive: zipfile.ZipFile, file: BinaryIO) -> dict[str, Any]:
    """Returns the manifest of an open zip file; raises ValueError if it is no checkpoint's."""
    num_bytes = os.fstat(file.fileno()).st_size
    sizes = [max(member.file_size, member.compress_size) for member in archive.infolist()]
    if any(size > num_bytes for size in sizes):
        raise ValueError(f"it has only {num_bytes} bytes, fewer than its directory lists")
    if f"{MANIFEST}.npy" not in archive.namelist():
        raise ValueError("the zip file holds no manifest")
    manifest = json.loads(member_in(archive.read(f"{MANIFEST}.npy"), MANIFEST).tobytes())
    if (manifest["format"], manifest["version"]) != (FORMAT, VERSION):
        raise ValueError(
            f"expected a {FORMAT} of version {VERSION}, found a {manifest['format']} of "
            f"version {manifest['version']}"
        )
    return manifest


def array_in(content: bytes, name: str, entry: Mapping[str, Any]) -> np.ndarray:
    """Returns the array of a member; raises ValueError if it differs from the manifest."""
    array = member_in(content, name)
    shape, dtype = tuple(entry["shape"]), np.dtype(tf.as_dtype(entry["dtype"]).as_numpy_dtype)
    if dtype.isbuiltin != 1:
        array = array.view(dtype).reshape(shape)
    if array.shape != shape or array.dtype != dtype:
        raise ValueError(
            f"the manifest says that {entry['path']} is {dtype} {list(shape)}, "
            f"its array is {array.dtype} {list(array.shape)}"
        )
    return array


def member_in(content: bytes, name: str) -> np.ndarray:
    """Returns the array in a member's bytes, which it shares."""
    header = io.BytesIO(content)
    if (version := np.lib.format.read_magic(header)) != (1, 0):
        raise ValueError(f"the array {name} has version {version} of NumPy's form, not (1, 0)")
    shape, is_fortran, dtype = np.lib.format.read_array_header_1_0(header)
    if dtype.hasobject:  # NumPy would unpickle them, which runs whatever the file says.
        raise ValueError(f"the array {name} holds Python objects")
    values = np.frombuffer(content, dtype, offset=header.tell())
    if is_fortran or values.size != math.prod(shape):
        raise ValueError(f"the array {name} has {values.size} values for the shape {shape}")
    return values.reshape(shape)

"""ArrayRecord files: records that are read by their number, with the library `array_record`.

Format: github.com/google/array_record. Record files of TensorFlow Datasets may have it.
"""

from __future__ import annotations

import functools
import os
import re
from typing import Any

from towers.data.extras import import_extra

_NAME = re.compile(r"\.array_?record(-\d{5}-of-\d{5})?$", re.IGNORECASE)
_OPEN_FILES = 256
# Without reading ahead, a record costs one read at its place.
_OPTIONS = "readahead_buffer_size:0"


def is_array_record(path: str | os.PathLike[str]) -> bool:
    """Returns whether a file's name is that of ArrayRecord."""
    return _NAME.search(os.fspath(path)) is not None


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


@functools.lru_cache(_OPEN_FILES)
def _reader(path: str) -> Any:
    module = import_extra(
        "array_record.python.array_record_module",
        "array_record",
        f"{path} is an ArrayRecord file",
    )
    with open(path, "rb"):  # The library does not say that there is no such file.
        pass
    reader = module.ArrayRecordReader(path, _OPTIONS)
    if not reader.ok():
        raise ValueError(
            f"{path} is cut off, or is no ArrayRecord file: it has no list of records at its end."
        )
    return reader

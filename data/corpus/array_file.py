"""An .npy file that is written in pieces, without holding the array in memory."""

from __future__ import annotations

from pathlib import Path

import numpy as np


class ArrayFile:
    """A file that is appended to; used as a context, at whose end it is whole.

    Mapped into memory instead, a full disk would be a SIGBUS.

    Args:
        path: of the file.
        dtype: of the array.
        row_shape: the shape of the array without its first dimension.
    """

    def __init__(self, path: Path, dtype: type[np.generic], row_shape: tuple[int, ...] = ()):
        self._dtype, self._row_shape = np.dtype(dtype), row_shape
        self._num_rows = 0
        self._file = path.open("wb")
        self._write_header()

    def __enter__(self) -> ArrayFile:
        return self

    def __exit__(self, *_: object) -> None:
        with self._file:
            self._file.seek(0)
            self._write_header()

    def append(self, rows: np.ndarray) -> None:
        """Writes further rows."""
        self._file.write(np.ascontiguousarray(rows, self._dtype).data)
        self._num_rows += len(rows)

    def _write_header(self) -> None:
        """Writes the beginning, whose size does not depend on the number of rows."""
        header = {
            "descr": np.lib.format.dtype_to_descr(self._dtype),
            "fortran_order": False,
            "shape": (self._num_rows, *self._row_shape),
        }
        np.lib.format.write_array_header_1_0(self._file, header)

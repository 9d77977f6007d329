"""What counts as rounding where numbers of a whole batch are compared with those of its parts."""

from __future__ import annotations

import numpy as np

TOLERANCES = {"float64": 1e-9, "float32": 1e-4, "float16": 2e-2, "bfloat16": 5e-2}


def near(expected: np.ndarray, received: np.ndarray) -> bool:
    """Returns whether two arrays differ by rounding alone."""
    if expected.dtype.kind not in "fcV":
        return bool(np.array_equal(expected, received))
    tolerance = TOLERANCES.get(expected.dtype.name, 1e-4)
    one, other = (np.asarray(value, np.complex128 if value.dtype.kind == "c" else np.float64)
                  for value in (expected, received))  # fmt: skip
    if not np.array_equal(np.isfinite(one), np.isfinite(other)):
        return False
    one, other = (value[np.isfinite(value)] for value in (one, other))
    size = max(np.abs(one).max(initial=0), np.abs(other).max(initial=0))
    return bool(np.abs(one - other).max(initial=0) <= tolerance * size + 1e-30)

"""Keras's backend: `import towers` chooses TensorFlow, which is the only one that it works with."""

from __future__ import annotations

import os
import sys
import warnings

VARIABLE, BACKEND = "KERAS_BACKEND", "tensorflow"


def choose_backend() -> None:
    """Makes Keras take TensorFlow, and warns if it was to take another.

    Raises:
        ImportError: Keras was imported before, with another.
    """
    if "keras" in sys.modules:
        used = sys.modules["keras"].config.backend()
        if used != BACKEND:
            raise ImportError(
                f"Keras runs with {used!r} here, and towers needs {BACKEND!r}: set "
                f"{VARIABLE}={BACKEND}, or import towers before keras."
            )
        return
    given = os.environ.get(VARIABLE) or BACKEND
    if given != BACKEND:
        warnings.warn(
            f"{VARIABLE}={given} is not used: towers works with TensorFlow alone.",
            RuntimeWarning,
            stacklevel=3,
        )
    os.environ[VARIABLE] = BACKEND  # Also where Keras's own file names another.


choose_backend()

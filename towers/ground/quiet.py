"""TensorFlow without its notices."""

from __future__ import annotations

import importlib
import os
import sys

from towers.ground.progress import waiting


def import_tensorflow_quietly() -> None:
    """Imports TensorFlow without the notices that its C++ code writes to file descriptor 2."""
    # Without an NVIDIA driver TensorFlow reports as an error that it finds no GPU.
    level = "2" if os.path.exists("/proc/driver/nvidia/version") else "3"
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", level)
    if "tensorflow" in sys.modules:
        return
    sys.stderr.flush()
    stderr = os.dup(2)
    with waiting("loading TensorFlow"):
        try:
            with open(os.devnull, "wb") as nowhere:
                os.dup2(nowhere.fileno(), 2)
            importlib.import_module("tensorflow")
        finally:
            os.dup2(stderr, 2)
            os.close(stderr)

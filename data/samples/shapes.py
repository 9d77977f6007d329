"""The embedded image set: ten kinds of drawn shapes in the format of CIFAR-10.

`python -m tests.data.samples.drawing FOLDER` draws the files again.
"""

from __future__ import annotations

from pathlib import Path


def folder() -> Path:
    """Returns the folder of the embedded files, for `cifar10.load`."""
    return Path(__file__).parent / "shapes_cifar10"

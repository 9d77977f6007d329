"""TensorFlow's kernels for CPUs: `import towers` imports this first, and with it chooses oneDNN's.

Every recipe that was timed with and without them was faster with them (docs/results.md). By
default TensorFlow has them only on processors with AVX-512 VNNI and the like. It reads the choice
when it is imported.
"""

from __future__ import annotations

import os
import platform
import sys
import warnings

CHOICE = "TF_ENABLE_ONEDNN_OPTS"
IS_X86 = platform.machine() in ("x86_64", "AMD64")
# Whether TensorFlow came first and took its default; a choice in the environment is kept.
IS_DEFAULT = CHOICE not in os.environ and "tensorflow" in sys.modules

if IS_X86:
    os.environ.setdefault(CHOICE, "1")


def warn_of_slow_kernels() -> None:
    """Warns if TensorFlow is without oneDNN only since it was imported before `towers`."""
    if not (IS_X86 and IS_DEFAULT):
        return
    from towers.ground.private_apis import IsMklEnabled  # It imports TensorFlow.

    if not IsMklEnabled():
        warnings.warn(
            "TensorFlow was imported before towers, and so without oneDNN's kernels, which are "
            f"usually faster. Import towers first, or set {CHOICE}=1; {CHOICE}=0 stays without "
            "them and this warning.",
            RuntimeWarning,
            stacklevel=levels_to_caller(),
        )


def levels_to_caller() -> int:
    """Returns the `stacklevel` of a warning, made by who calls this, about a caller of `towers`."""
    frame, levels = sys._getframe(1), 1
    within = ("towers.", "contextlib")  # The second for functions that a scope decorates.
    while frame.f_back and str(frame.f_globals.get("__name__")).startswith(within):
        frame, levels = frame.f_back, levels + 1
    return levels

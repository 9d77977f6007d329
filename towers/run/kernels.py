"""TensorFlow's kernels for CPUs: `import towers` imports this first, and with it chooses oneDNN's.

They are faster on every x86 processor, but TensorFlow has them by default only on those with
AVX-512 VNNI and the like. It reads the choice when it is imported.
"""

import os
import platform

CHOICE = "TF_ENABLE_ONEDNN_OPTS"

if platform.machine() in ("x86_64", "AMD64"):
    os.environ.setdefault(CHOICE, "1")  # What the environment says already is kept.

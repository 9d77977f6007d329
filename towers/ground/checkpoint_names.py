"""The names of checkpoint files, for what looks at a run without TensorFlow, too."""

from __future__ import annotations

import re

SUFFIX = ".ckpt.npz"
BEST = f"best{SUFFIX}"
OF_STEP = re.compile(rf"step-(\d{{8,}}){re.escape(SUFFIX)}")

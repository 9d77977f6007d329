"""A file of results over time: one line of JSON for each benchmark of a commit."""

from __future__ import annotations

import datetime
import json
import platform
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import tensorflow as tf

import towers

ROOT = Path(__file__).resolve().parents[1]
PROCESSOR = Path("/proc/cpuinfo")


def append_line(path: Path, arguments: Sequence[str], results: Any) -> None:
    """Appends what was measured, with the commit, the time and the machine.

    Args:
        path: the file; it is made if it is absent.
        arguments: the command line.
        results: plain values.

    Raises:
        OSError: the file cannot be written.
    """
    line = {
        "commit": git("rev-parse", "HEAD"),
        "changed": bool(git("status", "--porcelain", "--untracked-files=no")),
        "date": datetime.datetime.now().astimezone().isoformat(timespec="seconds"),
        "processor": processor(),
        "cores": towers.devices.num_cores(),
        "gpus": gpus(),
        "python": platform.python_version(),
        "versions": towers.checkpoints.package_versions(),
        "arguments": list(arguments),
        "results": results,
    }
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")


def git(*arguments: str) -> str | None:
    """Returns what git prints about this clone, or None if it cannot tell."""
    try:
        return subprocess.run(
            ["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True
        ).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None


def processor() -> str:
    """Returns the processor's name, as far as the system tells it."""
    if sys.platform == "linux" and PROCESSOR.exists():
        for line in PROCESSOR.read_text(encoding="utf-8").splitlines():
            name, _, value = line.partition(":")
            if name.strip() == "model name":
                return value.strip()
    return platform.processor() or platform.machine()


def gpus() -> list[str]:
    """Returns the names of the GPUs."""
    details = tf.config.experimental.get_device_details
    found = tf.config.list_physical_devices("GPU")
    return [details(gpu).get("device_name", gpu.name) for gpu in found]

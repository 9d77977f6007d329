"""A run's run.json: what ran, and when, on what and with which versions each process began."""

from __future__ import annotations

import datetime
import importlib.metadata
import json
import platform
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from towers.ground.durable import make_folder, write_file

NAME = "run.json"


def record_start(
    run_dir: Path,
    record: Mapping[str, Any],
    devices: Sequence[str],
    before: Mapping[str, Any] | None = None,
    num_processes: int = 1,
) -> None:
    """Records what runs, and that so many processes begin, this one on these devices.

    Args:
        run_dir: the run's directory, which is made if there is none.
        record: what runs, of JSON types.
        devices: of this process's towers.
        before: the record of the run that goes on, or None for a new run.
        num_processes: how many train as one.

    Raises:
        OSError: it cannot be written.
    """
    make_folder(run_dir)
    start = {
        "time": datetime.datetime.now().astimezone().isoformat(timespec="seconds"),
        "command": sys.argv,
        "devices": list(devices),
        "python": platform.python_version(),
        "versions": package_versions(),
        "machine": platform.platform(),
        "processes": num_processes,
    }
    starts = [*(before or {"starts": []})["starts"], start]
    content = json.dumps({**record, "starts": starts}, indent=2) + "\n"
    write_file(run_dir / NAME, content.encode("utf-8"))


def package_versions() -> dict[str, str]:
    """Returns the versions of the packages that compute."""
    packages = ("towers", "tensorflow", "keras", "numpy")
    return {name: importlib.metadata.version(name) for name in packages}

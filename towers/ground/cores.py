"""The cores that this process may use: by its affinity, and by the quota of its control group."""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Iterator
from pathlib import Path

GROUPS, OWN_GROUPS = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")


def num_cores() -> int:
    """Returns the number of cores that this process may use, at least 1.

    A container's quota counts, rounded up: `docker run --cpus 1.5` gives two cores.
    """
    if hasattr(os, "sched_getaffinity"):
        cores = len(os.sched_getaffinity(0))
    else:
        cores = os.cpu_count() or 1
    return max(1, min([cores, *map(math.ceil, quotas(GROUPS, OWN_GROUPS))]))


def quotas(groups: Path, own: Path) -> Iterator[float]:
    """Yields the quota in cores of each control group that holds this process, if it has one.

    Args:
        groups: where the system shows the groups (kernel: Control Group v2, "CPU"; in version 1,
            "CFS Bandwidth Control").
        own: the file that names those of this process.
    """
    try:
        lines = own.read_text(encoding="utf-8").splitlines()
    except OSError:
        return
    for line in lines:
        _, kinds, name = line.split(":", 2)
        if kinds and "cpu" not in kinds.split(","):
            continue
        base = groups / "cpu" if kinds else groups
        folder = base / name.lstrip("/")  # In a container it may be one of the host's, not shown.
        for one in (folder, *folder.parents[: len(folder.parts) - len(base.parts)]):
            with contextlib.suppress(OSError, ValueError):
                yield quota_of(one, is_first_version=bool(kinds))


def quota_of(folder: Path, *, is_first_version: bool) -> float:
    """Returns the quota of a control group in cores; ValueError or OSError if it has none."""
    if is_first_version:
        names = ("cpu.cfs_quota_us", "cpu.cfs_period_us")
        quota, period = ((folder / name).read_text(encoding="ascii") for name in names)
    else:
        quota, period = (folder / "cpu.max").read_text(encoding="ascii").split()
    if float(quota) <= 0:  # Version 1 has -1 for none; float("max") raises.
        raise ValueError("no quota")
    return float(quota) / float(period)

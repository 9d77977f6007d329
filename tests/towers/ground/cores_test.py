"""Cores are those that the process may use: a container's quota counts, and the affinity."""

import math
import os

import pytest

from towers.ground import cores


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@pytest.fixture
def groups(tmp_path, monkeypatch):
    """The folder of the control groups, and the file that names those of this process."""
    monkeypatch.setattr(cores, "GROUPS", tmp_path / "cgroup")
    monkeypatch.setattr(cores, "OWN_GROUPS", tmp_path / "own")
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(8), raising=False)
    return tmp_path / "cgroup", tmp_path / "own"


@pytest.mark.parametrize(
    ("own", "files", "expected"),
    [
        ("0::/", {"cpu.max": "150000 100000\n"}, 2),
        ("0::/", {"cpu.max": "20000 100000\n"}, 1),
        ("0::/", {"cpu.max": "max 100000\n"}, 8),
        ("0::/a/b", {"a/cpu.max": "300000 100000", "a/b/cpu.max": "max 100000"}, 3),
        ("0::/hidden", {"cpu.max": "400000 100000\n"}, 4),
        ("0::/", {"cpu.max": "9900000 100000\n"}, 8),
        ("3:cpu,cpuacct:/", {"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, 8),
        (
            "4:memory:/\n3:cpu,cpuacct:/x",
            {"cpu/cpu.cfs_quota_us": "250000", "cpu/cpu.cfs_period_us": "100000"},
            3,
        ),
        ("4:memory:/x", {"cpu.max": "100000 100000"}, 8),
    ],
)
def test_the_quota_of_a_control_group_counts(own, files, expected, groups):
    folder, names = groups
    write(names, own + "\n")
    for name, text in files.items():
        write(folder / name, text)
    assert cores.num_cores() == expected


def test_a_system_without_groups_has_the_cores_of_the_affinity(groups):
    assert cores.num_cores() == 8


def test_this_machine_has_at_most_its_cores():
    assert 1 <= cores.num_cores() <= os.cpu_count()
    assert all(
        quota > 0 and math.isfinite(quota) for quota in cores.quotas(cores.GROUPS, cores.OWN_GROUPS)
    )

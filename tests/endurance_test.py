"""A long training needs hardly more memory than a short one, and no more descriptors.

`pytest -m slow tests/endurance_test.py -s` prints what was seen.
"""

import os
import re
import sys

import pytest

from tests.programs import TOWERS, started
from towers.scripts.timing.input_report import resident_bytes

STEPS, REPORT = 50_000, 1_000
SETTLED = 10_000  # Steps after which everything was done once: reports, evaluations, checkpoints.
MOST_GROWTH = 0.05  # Of the memory, from then on: each epoch's pipeline leaves some 18 kB behind.
TRAIN = [
    "train", "shapes", "--batch-size", "20", "--set", "filters=2,3", "--set", "hidden_size=4",
    "--steps", str(STEPS), "--report-every", str(REPORT), "--checkpoint-every", str(REPORT),
    "--evaluate-every", "5000",
]  # fmt: skip


def num_descriptors(process):
    return len(os.listdir(f"/proc/{process}/fd"))


def num_threads(process):
    return len(os.listdir(f"/proc/{process}/task"))


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="/proc tells what a process occupies")
@pytest.mark.parametrize("towers", [1, 2])
def test_memory_hardly_grows_and_descriptors_do_not(towers, tmp_path, capsys):
    command = [*TOWERS, *TRAIN, "--towers", str(towers), "--run-dir", tmp_path / "run"]
    seen = {}
    with started(command) as process:
        for line in process.stdout:
            if found := re.match(r"train \| step (\d+)", line):
                pid = process.pid
                seen[int(found[1])] = resident_bytes(pid), num_descriptors(pid), num_threads(pid)
        assert process.wait() == 0
    with capsys.disabled():
        print(f"\n{towers} towers: step, MB, descriptors, threads")
        for step, (size, *counts) in seen.items():
            if step % SETTLED == 0 or step == REPORT:
                print(f"{step:6} {size / 1e6:8.1f} {counts[0]:4} {counts[1]:4}")
    assert list(seen) == list(range(REPORT, STEPS + 1, REPORT))
    sizes, descriptors, threads = zip(
        *(seen[step] for step in seen if step >= SETTLED), strict=True
    )
    assert max(sizes) <= sizes[0] * (1 + MOST_GROWTH)
    # A checkpoint or an event file may be open at the moment of looking.
    assert max(descriptors[len(descriptors) // 2 :]) <= descriptors[0] + 1
    assert max(threads) == threads[0]

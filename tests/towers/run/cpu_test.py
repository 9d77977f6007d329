"""Towers that keep all cores busy run operations on one thread, and a process keeps its memory."""

import os
import resource
import subprocess
import sys
import textwrap

import pytest

from tests.paths import ROOT
from towers.run.cpu import SET_BY_USERS, num_cores, shares_cores

SAME = "print(tf.config.threading.get_intra_op_parallelism_threads())"
PAGES = 5 * 20 * 1024**2 // resource.getpagesize()
FAULTS = """
import resource

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    blocks = [number * (20 * 1024**2) for number in (b"0", b"1", b"2", b"3", b"4")]
    del blocks
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

faults()
print(faults())
"""


def printed(program, **variables):
    """Returns the number that a new process prints last."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith("TF_NUM_")}
    begin = "import tensorflow as tf\nimport towers\n"
    result = subprocess.run(
        [sys.executable, "-c", begin + textwrap.dedent(program)],
        capture_output=True, text=True, cwd=ROOT, env={**kept, **variables}, timeout=600,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr[-2000:]
    return int(result.stdout.split()[-1])


def test_as_many_towers_as_cores_share_them():
    cores = num_cores()
    assert shares_cores(max(2, cores)) and shares_cores(cores + 1)
    assert not shares_cores(1)
    assert not shares_cores(cores - 1)


@pytest.mark.parametrize(
    "program, variables, threads",
    [
        ("towers.select_devices({n})", {}, 1),
        ("towers.select_devices(1)", {}, 0),
        ("towers.select_devices({n})", {"TF_NUM_INTRAOP_THREADS": "3"}, 0),
        ("tf.config.threading.set_intra_op_parallelism_threads(3); towers.select_devices({n})",
         {}, 3),
        ("towers.enable_determinism(); towers.select_devices({n})", {}, 0),
        ("towers.select_devices({n}); towers.enable_determinism()", {}, 0),
        ("tf.config.threading.set_intra_op_parallelism_threads(1); towers.select_devices({n}); "
         "towers.enable_determinism()", {}, 1),
    ],
    ids=["towers", "one tower", "environment", "program", "determinism", "determinism later",
         "program and determinism"],
)  # fmt: skip
def test_operations_of_towers_on_all_cores_run_on_one_thread(program, variables, threads):
    number = max(2, num_cores())
    assert printed(f"{program.format(n=number)}\n{SAME}", **variables) == threads


def test_determinism_says_that_it_comes_too_late():
    program = f"""
        towers.select_devices({max(2, num_cores())})
        tf.zeros(1)
        try:
            towers.enable_determinism()
        except RuntimeError as error:
            print(int("before the first tensor" in str(error)))
    """
    assert printed(program) == 1


@pytest.mark.skipif(sys.platform != "linux", reason="only glibc is told to keep memory")
@pytest.mark.skipif(
    any(name in os.environ for name in SET_BY_USERS), reason="malloc is set by the environment"
)
def test_what_a_step_frees_is_kept_for_the_next():
    assert printed("towers.select_devices(1)\n" + FAULTS) < PAGES / 10
    assert printed(FAULTS) > PAGES / 2  # What it is for.

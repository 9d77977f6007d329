"""Towers that keep all cores busy run operations on one thread, and memory is kept."""

import os
import resource
import subprocess
import sys
import textwrap

import pytest

from tests.paths import ROOT
from towers.devices.cpu import are_threads_chosen, shares_cores
from towers.ground.cores import num_cores

THREADS = "print(tf.config.threading.get_intra_op_parallelism_threads())"
NUM_BLOCKS, BLOCK_BYTES = 5, 20 * 1024**2
PAGES = NUM_BLOCKS * BLOCK_BYTES // resource.getpagesize()
FAULTS = f"""
    import resource

    def faults():
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        blocks = [tf.fill([{BLOCK_BYTES}], tf.cast(i, tf.uint8)) for i in range({NUM_BLOCKS})]
        del blocks
        return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

    towers.select_devices(1)
    faults()
    print(faults())
"""


def printed(program, **variables):
    """Returns the number that a new process prints last."""
    chosen = ("TF_NUM_", "TF_CPU_ALLOCATOR", "TF_ENABLE_ONEDNN")
    kept = {key: value for key, value in os.environ.items() if not key.startswith(chosen)}
    begin = "import towers\nimport tensorflow as tf\n"
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


slow = pytest.mark.slow  # Each case is a process.
CHOSEN = "tf.config.threading.set_intra_op_parallelism_threads({}); "


@pytest.mark.parametrize(
    "program, variables, threads",
    [
        pytest.param("towers.select_devices({n})", {}, 1, id="towers"),
        pytest.param("towers.select_devices(1)", {}, 0, id="one tower", marks=slow),
        pytest.param("towers.select_devices({n})", {"TF_NUM_INTRAOP_THREADS": "3"}, 0,
                     id="environment", marks=slow),
        pytest.param(CHOSEN.format(3) + "towers.select_devices({n})", {}, 3,
                     id="program", marks=slow),
        pytest.param("towers.enable_determinism(); towers.select_devices({n})", {}, 0,
                     id="determinism"),
        pytest.param("towers.select_devices({n}); towers.enable_determinism()", {}, 0,
                     id="determinism later"),
        pytest.param(CHOSEN.format(1) + "towers.select_devices({n}); towers.enable_determinism()",
                     {}, 1, id="program and determinism", marks=slow),
    ],
)  # fmt: skip
def test_operations_of_towers_on_all_cores_run_on_one_thread(program, variables, threads):
    number = max(2, num_cores())
    assert printed(f"{program.format(n=number)}\n{THREADS}", **variables) == threads


def test_a_number_of_threads_in_the_environment_is_a_choice(monkeypatch):
    monkeypatch.delenv("TF_NUM_INTRAOP_THREADS", raising=False)
    before = are_threads_chosen()
    monkeypatch.setenv("TF_NUM_INTRAOP_THREADS", "3")
    assert are_threads_chosen() and not before


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


@pytest.mark.skipif(sys.platform != "linux", reason="other systems count pages in other ways")
def test_what_a_step_frees_is_kept_for_the_next():
    without = {"TF_ENABLE_ONEDNN_OPTS": "0"}  # oneDNN's allocator keeps memory by itself.
    assert printed(FAULTS) < PAGES / 10
    assert printed(FAULTS, **without) < PAGES / 10
    assert printed(FAULTS, **without, TF_CPU_ALLOCATOR_USE_BFC="false") > PAGES / 2

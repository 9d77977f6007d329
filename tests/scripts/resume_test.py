"""Law 7: killed at any moment and started again, a run ends bit-identical to one that was not."""

import json
import os
import random
import shutil
import signal
import sys
import time

import numpy as np
import pytest

from tests.curves import read_scalars
from tests.paths import ROOT
from tests.programs import PATIENCE, TOWERS, finish, run, started
from tests.scripts.runs import arrays_of, train_shapes
from towers.saving.checkpoint_folder import CheckpointFolder

NUM_STEPS = 45  # An epoch has 20 steps, so that kills fall into three of them.


def arguments_of(
    run_dir, *, num_towers=2, accumulate=1, steps=NUM_STEPS, parameters="auto", exchange="packs"
):
    """Returns the arguments of a training, deterministic unless collective ops forbid it."""
    options = ["--towers", num_towers, "--steps", steps, "--parameters", parameters]
    options += ["--accumulate", accumulate, "--exchange", exchange]
    options += ["--deterministic"] if exchange == "packs" else []
    options += ["--report-every", "2", "--checkpoint-every", "3"]
    return train_shapes(run_dir, *options, "--set", "hidden_size=16")


def start(run_dir, **options):
    """Starts a training process; its lines come through a pipe as they are printed."""
    return started([*TOWERS, *arguments_of(run_dir, **options)], bufsize=1)


def train(run_dir, **options):
    """Runs a training process to its end and returns what it printed."""
    with start(run_dir, **options) as process:
        return finish(process)


def kill_once(run_dir, moments, **options):
    """Starts a process and kills it at a random moment; returns whether it was still at work."""
    with start(run_dir, **options) as process:
        process.stdout.readline()
        if moments.random() < 0.7:  # While it trains; else at any time, building and restoring too.
            left = moments.randint(1, 15)
            for line in process.stdout:
                left -= line.startswith(("train", "done"))
                if left <= 0:
                    break
            time.sleep(moments.uniform(0, 0.05))
        else:
            time.sleep(moments.uniform(0, 3))
        alive = process.poll() is None
        process.send_signal(signal.SIGKILL)
        process.communicate(timeout=PATIENCE)
    return alive


def final_arrays(run_dir, step=NUM_STEPS):
    checkpoint = CheckpointFolder(run_dir / "checkpoints").latest()
    assert checkpoint.step == step
    return {
        f"{group}/{index}/{saved.path}": saved.array
        for group, arrays in checkpoint.groups.items()
        for index, saved in enumerate(arrays)
    }


def assert_identical(actual, expected):
    assert actual.keys() == expected.keys()
    for name, array in expected.items():
        np.testing.assert_array_equal(actual[name], array, err_msg=name)


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    path = tmp_path_factory.mktemp("uninterrupted") / "run"
    train(path)
    return path


def assert_each_step_once(run_dir, expected_dir, steps=NUM_STEPS):
    for curve in ("average", "tower_0", "tower_1"):
        written = [step for step, _ in read_scalars(run_dir / "summaries", curve)["loss"]]
        assert written == list(range(2, steps + 1, 2)), curve
    for curve in ("average", "tower_1", "evaluation"):
        actual = read_scalars(run_dir / "summaries", curve)["loss"]
        assert actual == read_scalars(expected_dir / "summaries", curve)["loss"]


def kill_and_compare(run_dir, uninterrupted, num_kills, steps=NUM_STEPS, **options):
    seed = os.getpid()
    print(f"moments are those of seed {seed}")
    moments = random.Random(seed)
    options["steps"] = steps
    survived = sum(kill_once(run_dir, moments, **options) for _ in range(num_kills))
    print(f"{survived} of {num_kills} processes were at work when they were killed")
    assert survived, "no process was alive when it was killed: the moments are too late"
    train(run_dir, **options)
    assert_identical(final_arrays(run_dir, steps), final_arrays(uninterrupted, steps))
    assert_each_step_once(run_dir, uninterrupted, steps)


@pytest.mark.slow
def test_a_killed_run_ends_bit_identical(uninterrupted, tmp_path):
    kill_and_compare(tmp_path / "run", uninterrupted, 1)


@pytest.mark.slow
def test_run_interrupted_and_killed_ends_bit_identical(uninterrupted, tmp_path):
    """Ctrl-C finishes the step, saves and says how to go on; a kill may come at any moment."""
    run_dir = tmp_path / "run"
    with start(run_dir) as process:
        for line in process.stdout:
            if line.startswith("train | step 6 "):
                break
        process.send_signal(signal.SIGINT)
        output = finish(process, code=130)
    assert f"continue with: towers train --run-dir {run_dir} shapes " in output
    stopped = CheckpointFolder(run_dir / "checkpoints").latest()
    assert stopped.step >= 6 and f"step {stopped.step} saved" in output
    kill_and_compare(run_dir, uninterrupted, 1)


@pytest.mark.slow
def test_killed_run_with_a_copy_on_each_tower_ends_like_one_with_shared_variables(
    uninterrupted, tmp_path
):
    kill_and_compare(tmp_path / "run", uninterrupted, 1, parameters="replicated")


@pytest.mark.slow
def test_killed_run_whose_copies_sum_by_collective_ops_ends_like_one_that_was_not(tmp_path):
    """On virtual CPUs, whose ring adds in the same order each time; NCCL promises no such order."""
    options = {"exchange": "nccl", "parameters": "replicated"}
    train(tmp_path / "uninterrupted", **options)
    kill_and_compare(tmp_path / "run", tmp_path / "uninterrupted", 2, **options)


@pytest.mark.slow
def test_run_killed_twenty_times_ends_bit_identical(tmp_path):
    train(tmp_path / "uninterrupted", steps=400)
    kill_and_compare(tmp_path / "run", tmp_path / "uninterrupted", 20, steps=400)


IN_ONE_PROCESS = """
import json, sys
from tests import conftest
from towers.scripts.main import main
conftest.make_logical_cpus()
sys.exit(max(main(arguments) for arguments in json.loads(sys.argv[1])))
"""


def train_several(*commands):
    """Runs several trainings in one process and returns what it printed."""
    command = [sys.executable, "-c", IN_ONE_PROCESS, json.dumps(commands)]
    return run(command, cwd=ROOT)


@pytest.mark.slow
def test_a_run_goes_on_on_other_towers(tmp_path):
    """To the last bit where the batches are cut into the same parts, else to law 1's tolerance."""
    train_several(arguments_of(tmp_path / "four", num_towers=4, steps=8))
    others = {"one": (1, 4), "three": (3, 1)}
    for name in others:
        shutil.copytree(tmp_path / "four", tmp_path / name)
    output = train_several(*(
        arguments_of(tmp_path / name, num_towers=towers, accumulate=accumulate, steps=12)
        for name, (towers, accumulate) in {**others, "four": (4, 1)}.items()
    ))  # fmt: skip
    assert output.count("continues at step 8") == 3
    (step, expected), (_, same), (_, actual) = (
        arrays_of(tmp_path / name) for name in ("four", "one", "three")
    )
    assert step == 12
    assert_identical(same, expected)
    assert actual.keys() == expected.keys()
    for name, array in expected.items():
        np.testing.assert_allclose(actual[name], array, atol=2e-6, err_msg=name)

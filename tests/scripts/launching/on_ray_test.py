"""Workers of a real Ray cluster train one model, and go on after real faults.

Each cluster is in a network of its own, since Ray and TensorFlow listen on the node's address.
"""

import importlib.util
import os
import re
import subprocess
import sys
import textwrap

import numpy as np
import pytest

from tests import helpers
from tests.paths import ROOT
from tests.programs import run
from tests.scripts.runs import train_shapes, weights_of
from towers.scripts.main import main

needs_ray = pytest.mark.skipif(
    importlib.util.find_spec("ray") is None, reason="ray[train] is not installed: it is an extra"
)
OPTIONS = ["--steps", 12, "--precision", "float64", "--checkpoint-every", 5]
# A network of its own, then the program of the other arguments.
PRIVATE = """
import os, sys, tempfile
from towers.scripts.launching.network import enter_private_network
enter_private_network()
os.makedirs(os.path.join(tempfile.gettempdir(), "ray"), exist_ok=True)
os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
"""


@pytest.fixture
def private():
    """The beginning of a command that runs a program of Python's in a network of its own."""
    command = [sys.executable, "-c", PRIVATE]
    if subprocess.run([*command, "-c", ""], capture_output=True).returncode:
        pytest.skip("this system gives no network of its own, and Ray would be open to others")
    return command


def environment():
    return {**os.environ, "RAY_USAGE_STATS_ENABLED": "0", "PYTHONPATH": str(ROOT)}


@needs_ray
def test_two_workers_of_ray_train_as_two_towers_and_their_lines_have_numbers(private, tmp_path):
    launch = ["launch", "--ray", "local", "--workers", "2", "--storage", tmp_path / "kept", "--"]
    command = [*private, "-m", "towers.scripts.main", *launch]
    command += train_shapes(tmp_path / "run", "--towers", 1, *OPTIONS)
    output = run(command, env=environment(), cwd=tmp_path)
    assert main(train_shapes(tmp_path / "alone", "--towers", 2, *OPTIONS)) == 0
    alone, together = weights_of(tmp_path / "alone"), weights_of(tmp_path / "run")
    helpers.assert_same_weights(together, alone, float64=True)
    for worker in range(2):
        assert re.search(rf"worker {worker}: train \| step 12 ", output), output
    assert list((tmp_path / "kept").rglob("step-00000012.ckpt.npz"))


def program_of_the_guide(folder):
    """Returns the program in which `towers.fit` trains on Ray, with data that needs no network."""
    guide = (ROOT / "docs" / "guides" / "processes.md").read_text()
    (code,) = (one for one in re.findall(r"```python\n(.*?)```", guide, re.S) if "Trainer" in one)
    assert len(code.splitlines()) <= 25
    data = "x, y = np.arange(512 * 9).reshape(512, 3, 3) % 256, np.arange(512) % 10"
    changes = {
        "(x, y), _ = keras.datasets.mnist.load_data()": f"{data}; keras.utils.set_random_seed(3)",
        "import keras\n": "import keras\nimport numpy as np\n",
        "use_gpu=True": "use_gpu=False",
        "s3://bucket/runs": os.fspath(folder / "kept"),
    }
    for before, after in changes.items():
        assert code.count(before) == 1
        code = code.replace(before, after)
    return code


@needs_ray
@pytest.mark.slow
def test_the_program_of_the_guide_trains_as_one_process_with_two_towers(private, tmp_path):
    code = program_of_the_guide(tmp_path)
    run([*private, "-c", code], env=environment(), cwd=tmp_path)
    (newest,) = (path.parents[1] for path in sorted(tmp_path.rglob("step-*.ckpt.npz"))[-1:])
    loop = code[code.index("    x, y") :]
    loop = textwrap.dedent(loop[: loop.index("TensorflowTrainer(")])
    loop = loop.replace("run_dir=run.folder, callbacks=[run]", "run_dir='alone', towers=2")
    alone = f"import keras, numpy as np, towers\n{loop}"
    run([sys.executable, "-c", alone], env=environment(), cwd=tmp_path)
    for actual, expected in zip(weights_of(newest), weights_of(tmp_path / "alone"), strict=True):
        np.testing.assert_allclose(actual, expected, atol=1e-6 * np.max(np.abs(expected)))


@needs_ray
@pytest.mark.slow
@pytest.mark.parametrize(
    "case",
    [
        "worker",
        "chief",
        "spare",
        "elastic",
        "without",
        "paused",
        "exception",
        "disk",
        "driver",
        "interrupt",
    ],
)
def test_after_a_fault_the_training_goes_on_to_the_same_bits(case, private):
    command = [sys.executable, "-m", "benchmarks.ray_faults", case]
    run(command, env=environment(), cwd=ROOT, patience=1200)


def test_without_ray_its_absence_is_told(monkeypatch, capfd):
    monkeypatch.setitem(sys.modules, "ray", None)
    assert main(["launch", "--ray", "auto", "--", "train", "shapes"]) == 2
    assert "pip install -e '.[ray]'" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--workers", "2"], "--workers: only with --ray ADDRESS"),
        (["--nnodes", "2"], "--cluster HOST:PORT,... with --index I on each"),
        (["--ray", "auto", "--processes", "2"], "--processes: not with --ray"),
        (["--ray", "auto", "--workers", "4,2"], "the least and the most"),
        (["--ray", "auto", "--workers", "0"], "at least 1"),
    ],
)
def test_options_that_do_not_fit_are_refused(options, expected, capfd):
    try:
        code = main(["launch", *options, "--", "train", "shapes"])
    except SystemExit as leaving:  # argparse.
        code = leaving.code
    assert code == 2 and expected in capfd.readouterr().err

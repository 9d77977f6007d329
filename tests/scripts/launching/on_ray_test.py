"""Workers of a real Ray cluster train one model, and go on after real faults.

Each cluster is in a network of its own, since Ray and TensorFlow listen on the node's address.
"""

import importlib.util
import os
import re
import subprocess
import sys
import tempfile
import textwrap

import numpy as np
import pytest

from tests import helpers
from tests.paths import ROOT
from tests.programs import finish, run, started, wait_until
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
    launch = ["launch", "--ray", "local", "--workers", "2", "--storage", "kept", "--"]
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


# Two nodes of Ray, each with a working folder of its own, then the program of the other arguments.
ON_NODES = """
import os, pathlib, subprocess, sys
from towers.scripts.launching.network import enter_private_network
enter_private_network()
from benchmarks.ray_faults import start_nodes
cluster, nodes = start_nodes(pathlib.Path(sys.argv[1]), 2)
environment = {**os.environ, "RAY_ADDRESS": cluster.address}
command = [sys.executable, *(one.replace("ADDRESS", cluster.address) for one in sys.argv[2:])]
code = subprocess.call(command, cwd=os.path.join(sys.argv[1], "work"), env=environment)
cluster.shutdown()
sys.exit(code)
"""


def run_on_nodes(*arguments):
    """Runs a program of Python's on two nodes, both of which work; returns what it printed."""
    with tempfile.TemporaryDirectory(prefix="r") as folder:  # Paths of sockets must be short.
        command = [sys.executable, "-c", ON_NODES, folder, *map(str, arguments)]
        output = run(command, env=environment(), cwd=ROOT)
    for address in ("127.0.0.2", "127.0.0.3"):
        assert re.search(rf"ip={address}, pid=\d+\) world_rank", output), output
    return output


def newest_weights(folder):
    """Returns the weights of the newest checkpoint below a folder."""
    newest = max(folder.rglob("step-*.ckpt.npz"), key=lambda path: path.name)
    return weights_of(newest.parents[1])


EXACT = "import towers; towers.enable_determinism(); keras.utils.set_random_seed(3)"


@needs_ray
@pytest.mark.slow
@pytest.mark.usefixtures("private")
@pytest.mark.parametrize("atol", [0, 1e-6])
def test_the_program_of_the_guide_on_two_nodes_trains_as_one_process_with_two_towers(
    atol, tmp_path
):
    code = program_of_the_guide(tmp_path)
    if not atol:
        code = code.replace("keras.utils.set_random_seed(3)", EXACT)
    run_on_nodes("-c", code)
    loop = code[code.index("    x, y") :]
    loop = textwrap.dedent(loop[: loop.index("TensorflowTrainer(")])
    loop = loop.replace("run_dir=run.folder, callbacks=[run]", "run_dir='alone', towers=2")
    alone = f"import keras, numpy as np, towers\n{loop}"
    run([sys.executable, "-c", alone], env=environment(), cwd=tmp_path)
    expected = weights_of(tmp_path / "alone")
    for actual, one in zip(newest_weights(tmp_path / "kept"), expected, strict=True):
        np.testing.assert_allclose(actual, one, rtol=0, atol=atol * np.max(np.abs(one)))


TOWER_FUNCTION = """
import sys
def train_loop(config):
    import towers
    import keras
    import numpy as np
    import tensorflow as tf
    on_ray = config["towers"] == 1
    towers.enable_determinism()
    keras.utils.set_random_seed(3)
    devices = towers.select_devices(config["towers"]).towers
    processes = towers.processes.join_processes()
    if on_ray:
        import towers.ray
        run = towers.ray.Run()
    placement = towers.Placement(devices)
    with placement.scope():
        layers = [keras.Input((9,)), keras.layers.Dropout(0.1), keras.layers.Dense(4)]
        model = keras.Sequential(layers)
        optimizer = keras.optimizers.Adam(0.01)
    x, y = np.arange(64 * 9.0, dtype="float32").reshape(64, 9) % 7, np.arange(64) % 4
    def tower_fn(shard):
        logits = model(shard[0], training=True)
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(shard[1], logits)
        return tf.reduce_sum(losses), tf.size(shard[1]), {}
    batches = towers.batches_from((x, y), 10, shuffle=True, seed=1)
    step = towers.build_train_step(
        tower_fn, model, optimizer, placement, batches, processes=processes
    )
    folder, reports = run.folder if on_ray else "alone", []
    trainer = towers.Trainer(step, batches, [reports.append], run_dir=folder)
    for epoch in range(3):
        trainer.train(epochs=epoch + 1)
        for last in [False, epoch == 2] * on_ray:  # The second tells of the same checkpoint.
            run.report({"loss": float(reports[-1].results.loss)}, last=last)
if sys.argv[1:]:
    from ray.train import RunConfig, ScalingConfig
    from ray.train.tensorflow import TensorflowTrainer
    TensorflowTrainer(
        train_loop, train_loop_config={"towers": 1}, scaling_config=ScalingConfig(num_workers=2),
        run_config=RunConfig(name="run", storage_path=sys.argv[1]),
    ).fit()
else:
    train_loop({"towers": 2})
"""


@needs_ray
@pytest.mark.slow
@pytest.mark.usefixtures("private")
def test_a_tower_function_on_two_nodes_has_the_bits_of_one_process(tmp_path):
    run_on_nodes("-c", TOWER_FUNCTION, tmp_path / "kept")
    run([sys.executable, "-c", TOWER_FUNCTION], env=environment(), cwd=tmp_path)
    for actual, expected in zip(
        newest_weights(tmp_path / "kept"), weights_of(tmp_path / "alone"), strict=True
    ):
        np.testing.assert_array_equal(actual, expected)


@needs_ray
@pytest.mark.slow
@pytest.mark.usefixtures("private")
def test_a_slow_storage_gets_the_last_checkpoint_and_never_fills_the_disk(tmp_path):
    program = "from tests.scripts.launching.slow_storage import main; main()"
    output = run_on_nodes("-c", program, tmp_path / "kept")
    waiting = " ".join(re.findall(r"waiting: ([\d ]+);", output))
    assert max(map(int, waiting.split())) <= 2
    kept = sorted((tmp_path / "kept").rglob("step-*.ckpt.npz"), key=lambda path: path.name)
    assert kept[-1].name == "step-00000030.ckpt.npz" and len(kept) < 30


CHATBOT = ["--language", "en", "--steps", 6, "--deterministic", "--checkpoint-every", 3]
CHATBOT += ["--set", "hidden_size=16", "--set", "batch_size=8"]


@needs_ray
@pytest.mark.slow
@pytest.mark.usefixtures("private")
def test_a_chatbot_on_two_nodes_that_share_no_folder_has_the_bits_of_one_process(tmp_path):
    train = ["train", "chatbot", "--run-dir", "run", *CHATBOT, "--towers"]
    launch = ["launch", "--ray", "ADDRESS", "--workers", 2, "--storage", tmp_path / "kept", "--"]
    run_on_nodes("-m", "towers.scripts.main", *launch, *train, 1)
    command = [sys.executable, "-m", "towers.scripts.main", *train, 2]
    run(list(map(str, command)), env=environment(), cwd=tmp_path)
    for actual, expected in zip(
        newest_weights(tmp_path / "kept"), weights_of(tmp_path / "run"), strict=True
    ):
        np.testing.assert_array_equal(actual, expected)


@needs_ray
@pytest.mark.slow
def test_what_one_worker_refuses_ends_the_others(private, tmp_path):
    """The chief alone writes metrics; the other worker waits for its gradients."""
    metrics = tmp_path / "run" / "metrics.jsonl"
    command = [*private, "-m", "towers.scripts.main", "launch", "--ray", "local", "--workers", "2"]
    command += ["--", *train_shapes(metrics.parent, "--towers", 1, "--steps", 10**6)]
    with started(command, env=environment(), cwd=tmp_path) as driver:
        wait_until(metrics.exists, "lines of the chief's")
        metrics.rename(metrics.with_suffix(".old"))
        metrics.mkdir()
        output = finish(driver, code=2)
    assert re.search(r"towers: error: worker 0 on .*metrics.jsonl.* Is a directory", output)


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
        (["--workers", "2"], "--workers can only be used with --ray ADDRESS"),
        (["--nnodes", "2"], "--cluster HOST:PORT,... with --index I on each"),
        (["--ray", "auto", "--processes", "2"], "--processes cannot be used with --ray"),
        (["--ray", "auto", "--workers", "4,2"], "a minimum and a maximum"),
        (["--ray", "auto", "--workers", "0"], "at least 1"),
    ],
)
def test_options_that_do_not_fit_are_refused(options, expected, capfd):
    try:
        code = main(["launch", *options, "--", "train", "shapes"])
    except SystemExit as leaving:  # argparse.
        code = leaving.code
    assert code == 2 and expected in capfd.readouterr().err

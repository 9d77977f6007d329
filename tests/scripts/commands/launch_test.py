"""`towers launch`: several processes train one model, end together and go on together."""

import contextlib
import functools
import gzip
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import time

import numpy as np
import pytest

from tests import helpers
from tests.curves import read_scalars
from tests.programs import TOWERS, finish, free_addresses, run, started, wait_until
from tests.scripts.runs import arrays_of, train_shapes, weights_of
from towers.data.samples import shapes
from towers.saving.checkpoint_folder import CheckpointFolder
from towers.scripts.commands import launch as launch_command
from towers.scripts.launching import processes, watching
from towers.scripts.launching.cluster import LaunchOptions, choose_cluster, free_ports, gpus_here
from towers.scripts.launching.processes import WorkerProcess, worker_command, worker_environment
from towers.scripts.launching.watching import forward_signals, send, watch
from towers.scripts.main import main

NUM_STEPS = 40
OPTIONS = ["--steps", NUM_STEPS, "--precision", "float64", "--deterministic"]
OPTIONS += ["--report-every", 2, "--checkpoint-every", 5]
REPORTED = list(range(2, NUM_STEPS + 1, 2))


def launch(folder, *options, towers=1, environment=()):
    """Starts the command, for a scope; its logs and its run go into a folder."""
    command = [*TOWERS, "launch", "--log-dir", folder, *options, "--"]
    command += train_shapes(folder / "run", "--towers", towers, *OPTIONS)
    return started(command, env={**os.environ, **dict(environment)})


def train(folder, *options, **more):
    """Runs the command to its end and returns what it printed."""
    with launch(folder, *options, **more) as process:
        return finish(process)


def wait_for(text, log, process):
    """Returns once a line of a worker's log has a text."""

    def is_there():
        assert process.poll() is None, process.communicate()[0]
        return log.exists() and text in log.read_text()

    wait_until(is_there, f"{text!r} in {log}")


def workers_of(process):
    """Returns the process ids of the workers, by their numbers."""
    children = pathlib.Path(f"/proc/{process.pid}/task/{process.pid}/children")
    if not children.exists():
        pytest.skip("this system does not tell the children of a process")
    return [int(child) for child in children.read_text().split()]


def is_alive(worker):
    try:
        os.kill(worker, 0)
    except ProcessLookupError:
        return False
    return True


def steps_of(run_dir, curve):
    return [step for step, _ in read_scalars(run_dir / "summaries", curve)["loss"]]


def assert_same_run(actual_dir, expected_dir, num_towers):
    """The same arrays bit for bit, and each step once in each curve, with the same numbers.

    Of the towers of other processes than the chief, the first number after a resume may differ.
    """
    step, actual = arrays_of(actual_dir)
    expected_step, expected = arrays_of(expected_dir)
    assert step == expected_step and actual.keys() == expected.keys()
    for name, array in expected.items():
        np.testing.assert_array_equal(actual[name], array, err_msg=name)
    for curve in ("average", *(f"tower_{tower}" for tower in range(num_towers))):
        assert steps_of(actual_dir, curve) == REPORTED, curve
    for curve in ("average", "tower_0"):
        losses = [
            read_scalars(one / "summaries", curve)["loss"] for one in (actual_dir, expected_dir)
        ]
        assert losses[0] == losses[1], curve


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """The run of one process with one tower."""
    path = tmp_path_factory.mktemp("alone") / "run"
    assert main(train_shapes(path, "--towers", 1, *OPTIONS[:4])) == 0
    return path


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    """The folder of two processes that were not interrupted."""
    folder = tmp_path_factory.mktemp("pair")
    with launch(folder, "--processes", "2") as process:
        first = process.stdout.readline()
        wait_for("process 1 of 2", folder / "worker.1.log", process)
        seen = [seen_from_outside(worker) for worker in workers_of(process)]
        (folder / "seen.json").write_text(json.dumps([first, seen]))
        assert "2 workers done" in finish(process)
    return folder


def seen_from_outside(worker):
    """Returns a worker's network, and whether this process reaches the address of each worker."""
    environment = pathlib.Path(f"/proc/{worker}/environ").read_bytes().split(b"\0")
    (config,) = [one for one in environment if one.startswith(b"TF_CONFIG=")]
    addresses = json.loads(config.partition(b"=")[2])["cluster"]["worker"]
    reached = [is_open(int(address.rpartition(":")[2])) for address in addresses]
    return os.readlink(f"/proc/{worker}/ns/net"), reached


def test_two_processes_train_as_one(pair, alone):
    helpers.assert_same_weights(weights_of(pair / "run"), weights_of(alone), float64=True)


def test_two_deterministic_processes_give_the_bits_of_one(pair, tmp_path):
    run([*TOWERS, *train_shapes(tmp_path / "run", "--towers", 2, *OPTIONS)])
    for name, array in arrays_of(tmp_path / "run")[1].items():
        np.testing.assert_array_equal(arrays_of(pair / "run")[1][name], array, err_msg=name)


@pytest.mark.parametrize(
    ("processes", "towers"),
    [pytest.param("4", 1, marks=pytest.mark.slow), pytest.param("2", 2, marks=pytest.mark.slow)],
)
def test_processes_and_their_towers_train_as_one(processes, towers, alone, tmp_path):
    train(tmp_path, "--processes", processes, towers=towers)
    helpers.assert_same_weights(weights_of(tmp_path / "run"), weights_of(alone), float64=True)
    for tower in range(4):
        assert steps_of(tmp_path / "run", f"tower_{tower}") == REPORTED


@pytest.mark.slow
def test_a_worker_that_stands_still_for_half_a_minute_goes_on(tmp_path):
    """On a busy machine a process may be silent for longer than TensorFlow's ten seconds."""
    with launch(tmp_path, "--processes", "2") as process:
        wait_for("train | step 10 ", tmp_path / "worker.1.log", process)
        worker = workers_of(process)[1]
        os.kill(worker, signal.SIGSTOP)
        time.sleep(30)
        os.kill(worker, signal.SIGCONT)
        assert "2 workers done" in finish(process)


def test_every_process_has_its_log(pair):
    for index in range(2):
        lines = (pair / f"worker.{index}.log").read_text().splitlines()
        before = ("warning: port", "waiting for")  # The second on a busy machine.
        first, *_ = (line for line in lines if not line.startswith(before))
        assert first.endswith(f"process {index} of 2")
        reports = [line for line in lines if line.startswith("train | step ")]
        assert len(reports) == len(REPORTED)
        assert all(f" (t{index} " in line for line in reports)
    lines = (pair / "worker.0.log").read_text().splitlines()
    assert sum(line.startswith("test  | step ") for line in lines) == 2


def test_every_process_reports_how_fast_all_are(pair):
    for index in range(2):
        log = (pair / f"worker.{index}.log").read_text()
        rates = re.findall(r"([0-9.]+) steps/s [|] ([0-9]+) examples/s", log)[1:]
        batch_sizes = [float(examples) / float(steps) for steps, examples in rates]
        np.testing.assert_allclose(np.median(batch_sizes), 100, rtol=0.1)


def test_every_process_writes_the_curves_of_its_towers(pair):
    for curve in ("average", "tower_0", "tower_1"):
        assert steps_of(pair / "run", curve) == REPORTED
    assert steps_of(pair / "run", "evaluation") == [20, 40]
    average, *towers = (
        np.array(read_scalars(pair / "run" / "summaries", curve)["loss"])
        for curve in ("average", "tower_0", "tower_1")
    )
    np.testing.assert_allclose(average, np.mean(towers, axis=0), rtol=1e-6)


def kill_one(folder, index, at):
    """Starts two workers, kills one after a step and waits until the command has ended."""
    with launch(folder, "--processes", "2") as process:
        wait_for(f"train | step {at} ", folder / "worker.1.log", process)
        workers = workers_of(process)
        assert len(workers) == 2 and all(map(is_alive, workers))
        os.kill(workers[index], signal.SIGKILL)
        output = finish(process, code=1)
    assert f"worker {index} was killed by SIGKILL" in output
    assert not any(map(is_alive, workers))
    assert CheckpointFolder(folder / "run" / "checkpoints").latest().step < NUM_STEPS


@pytest.mark.slow
def test_a_killed_worker_ends_all(tmp_path):
    kill_one(tmp_path, 1, at=16)  # The checkpoint before is that of step 15.


@pytest.mark.slow
@pytest.mark.parametrize("index", [0, 1])
def test_a_killed_worker_ends_all_and_the_same_command_goes_on(index, pair, tmp_path):
    kill_one(tmp_path, index, at=16)
    train(tmp_path, "--processes", "2")
    assert "continues at step" in (tmp_path / "worker.0.log").read_text()
    assert_same_run(tmp_path / "run", pair / "run", 2)


@pytest.mark.slow
def test_ctrl_c_saves_and_the_same_command_goes_on(pair, tmp_path):
    with launch(tmp_path, "--processes", "2") as process:
        wait_for("train | step 12 ", tmp_path / "worker.1.log", process)
        process.send_signal(signal.SIGINT)
        assert "2 workers stopped" in finish(process, code=130)
    stopped = CheckpointFolder(tmp_path / "run" / "checkpoints").latest().step
    assert 12 <= stopped < NUM_STEPS
    log = (tmp_path / "worker.0.log").read_text()
    assert f"stopped by Ctrl-C (SIGINT), step {stopped} saved" in log
    train(tmp_path, "--processes", "2")
    assert f"continues at step {stopped}" in (tmp_path / "worker.0.log").read_text()
    assert_same_run(tmp_path / "run", pair / "run", 2)


@pytest.mark.slow
def test_workers_do_not_outlive_a_launcher_that_was_killed(tmp_path):
    with launch(tmp_path, "--processes", "2") as process:
        wait_for("train | step 4 ", tmp_path / "worker.1.log", process)
        workers = workers_of(process)
        assert len(workers) == 2 and all(map(is_alive, workers))
        process.kill()
        process.wait()
        wait_until(lambda: not any(map(is_alive, workers)), "the workers' end")
    saved = CheckpointFolder(tmp_path / "run" / "checkpoints").latest().step
    assert 4 <= saved < NUM_STEPS
    assert f"step {saved} saved" in (tmp_path / "worker.0.log").read_text()


def start_worker(folder, program, index=0):
    """Starts a program as a worker."""
    return WorkerProcess(index, [sys.executable, "-c", program], {}, folder / f"worker.{index}.log")


@pytest.mark.parametrize("code", ["os.kill(os.getpid(), 9)", "sys.exit(2)"])
def test_the_one_whose_failure_follows_from_no_other_is_named(code, tmp_path, capsys):
    codes = ["sys.exit(1)", "os.abort()" if "kill" in code else "sys.exit(1)", code]
    workers = [
        start_worker(tmp_path, f"import os, sys; {code}", index) for index, code in enumerate(codes)
    ]
    for worker in workers:
        worker.process.wait()
    assert watch(workers) > 0
    assert "worker 2 " in capsys.readouterr().err


def test_a_log_that_is_removed_ends_no_training(tmp_path, capsys):
    program = "import time; time.sleep(1); raise SystemExit(3)"
    one = start_worker(tmp_path, program)
    one.log.unlink()
    assert watch([one]) == 3
    assert "exited with 3" in capsys.readouterr().err


def test_each_process_gets_its_share_of_the_gpus_that_are_here(tmp_path):
    assert gpus_here(["train"], {}, tmp_path) is None
    for name in ("nvidia0", "nvidia10", "nvidia2", "nvidiactl", "nvidia-uvm"):
        (tmp_path / name).touch()
    assert gpus_here(["train"], {}, tmp_path) == (0, 1, 2)
    assert gpus_here(["train"], {"CUDA_VISIBLE_DEVICES": "5,3"}, tmp_path) == (0, 1)
    assert gpus_here(["train"], {"CUDA_VISIBLE_DEVICES": "-1"}, tmp_path) is None
    assert gpus_here(["train", "shapes", "--gpus=0"], {}, tmp_path) is None
    assert len(choose_cluster(LaunchOptions(), (0, 1, 2))[1]) == 3


ASKED_TO_SAVE = """
import signal, sys, time
def save(*_):
    time.sleep(1)
    sys.exit(143)
signal.signal(signal.SIGTERM, save)
print("ready", flush=True)
time.sleep(600)
"""


@pytest.fixture
def terminal():
    """What a terminal's closing does to a program that is not under nohup."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


def test_a_closed_terminal_lets_the_workers_save(terminal, tmp_path):
    workers = []
    with forward_signals(functools.partial(send, workers)) as forwarded:
        workers.append(start_worker(tmp_path, ASKED_TO_SAVE))
        wait_until(lambda: "ready" in workers[0].log.read_text(), "the worker's handler")
        for _ in range(2):  # From the terminal, and from its shell.
            os.kill(os.getpid(), signal.SIGHUP)
        assert watch(workers, forwarded) == 143
    assert workers[0].code == 143


@pytest.mark.parametrize(
    ("patience", "seconds", "code"), [(600, 0.5, 0), (0.5, 600, -signal.SIGTERM)]
)
def test_workers_that_do_not_stop_with_the_others_are_ended(
    patience, seconds, code, tmp_path, monkeypatch
):
    monkeypatch.setattr(watching, "PATIENCE_SECONDS", patience)
    programs = ["import sys; sys.exit(143)", f"import time; time.sleep({seconds})"]
    workers = [start_worker(tmp_path, program, index) for index, program in enumerate(programs)]
    assert watch(workers) == 143
    assert workers[1].code == code


def test_a_worker_that_cannot_start_leaves_no_other(tmp_path, monkeypatch):
    started = []

    class Noted(WorkerProcess):
        def __init__(self, *arguments):
            super().__init__(*arguments)
            started.append(self)

    monkeypatch.setattr(processes, "WorkerProcess", Noted)
    monkeypatch.setattr(launch_command, "enter_private_network", lambda: None)
    commands = iter([[sys.executable, "-c", "import time; time.sleep(600)"], [tmp_path]])
    monkeypatch.setattr(processes, "worker_command", lambda *arguments: next(commands))
    assert main(["launch", "--log-dir", str(tmp_path), *TRAIN]) == 1
    assert [one.process.returncode for one in started] == [-signal.SIGTERM]


def test_workers_are_this_package_wherever_they_are_started(tmp_path):
    (tmp_path / "scripts").mkdir()
    (tmp_path / "scripts" / "__init__.py").touch()
    command = worker_command(["train", "--help"])
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert ended.returncode == 0 and "usage: towers train" in ended.stdout, ended.stderr


def is_open(port):
    """Returns whether somebody listens at a port of this machine."""
    with socket.socket() as one:
        return one.connect_ex(("127.0.0.1", port)) == 0


def test_nobody_outside_reaches_the_processes_of_a_local_launch(pair):
    first, seen = json.loads((pair / "seen.json").read_text())
    if first.startswith("warning: port"):
        pytest.skip(f"this system allows no private network: {first}")
    assert "a private network" in first
    for network, is_reached in seen:
        assert network != os.readlink("/proc/self/ns/net")
        assert is_reached == [False, False]


NO_NETWORK = """
import sys
from towers.scripts.launching import network
def unshare(flags):
    raise OSError(1, "Operation not permitted")
network.unshare = unshare
from towers.scripts.main import main
sys.exit(main(sys.argv[1:]))
"""


def test_without_a_network_of_their_own_open_ports_are_told_and_what_workers_refuse(
    tmp_path,
):
    command = [sys.executable, "-c", NO_NETWORK, "launch", "--log-dir", tmp_path]
    with started([*command, *TRAIN, "--set", "filters=many"]) as process:
        output = finish(process, code=2)
    assert re.match(r"warning: port \d+, \d+ will be open on every address", output), output
    assert "Operation not permitted" in output and "firewall" in output
    assert "towers: error: worker " in output and "Received 'many'" in output


@pytest.mark.slow
def test_a_worker_that_comes_back_to_a_finished_run_says_so_and_ends(pair):
    addresses = ",".join(free_addresses(2))
    train(pair, "--cluster", addresses, "--index", "1")
    assert "run is finished, and no other process joined" in (pair / "worker.1.log").read_text()


@contextlib.contextmanager
def waiting_for_another_machine(folder):
    """A launch whose peer never comes; yields it with its worker, which waits."""
    own, other = free_addresses(2)
    with launch(folder, "--cluster", f"{own},{other}", "--index", "0") as process:
        first, port = process.stdout.readline(), own.partition(":")[2]
        assert f"port {port} will be open on every address" in first and "WireGuard" in first
        for line in process.stdout:
            if "waiting for" in line:
                break
        assert line == f"worker 0: waiting for {other}, for at most 10 minutes ...\n"
        (worker,) = workers_of(process)
        yield process, worker


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_who_waits_for_another_machine_says_so_and_can_be_ended(number, tmp_path):
    with waiting_for_another_machine(tmp_path) as (process, worker):
        process.send_signal(number)
        finish(process, code=128 + number)
        assert not is_alive(worker)


@pytest.mark.slow
def test_who_waits_for_another_machine_does_not_outlive_its_launcher(tmp_path):
    with waiting_for_another_machine(tmp_path) as (process, worker):
        process.kill()
        process.wait()
        wait_until(lambda: not is_alive(worker), "the worker's end")


@pytest.mark.slow
def test_two_commands_as_on_two_machines_train_as_one_and_go_on(alone, tmp_path):
    cluster = ",".join(free_addresses(2))
    folders = [tmp_path / "0", tmp_path / "1"]

    @contextlib.contextmanager
    def both():
        """Both commands, each with a disk of its own."""
        options = [["--cluster", cluster, "--index", str(index)] for index in range(2)]
        with launch(folders[0], *options[0]) as one, launch(folders[1], *options[1]) as other:
            yield one, other

    with both() as processes:
        wait_for("train | step 12 ", folders[1] / "worker.1.log", processes[1])
        processes[1].send_signal(signal.SIGTERM)
        for index, process in enumerate(processes):
            assert "1 worker stopped" in finish(process, code=143)
            log = (folders[index] / f"worker.{index}.log").read_text()
            assert "(SIGTERM)" in log and "test  | step" not in log.split("train | step 12 ")[1]
            assert log.splitlines()[-1].startswith(
                "to continue, run the commands that started all processes"
            )
    with both() as processes:
        for process in processes:
            finish(process)
    helpers.assert_same_weights(weights_of(folders[0] / "run"), weights_of(alone), float64=True)
    assert not list(folders[1].rglob("*.ckpt*"))
    for index, folder in enumerate(folders):
        assert steps_of(folder / "run", f"tower_{index}") == REPORTED
        assert not (folder / "run" / "summaries" / f"tower_{1 - index}").exists()


def leave_run(alone, path, power, *, is_saved):
    """Copies a run, with another warmup power in its record."""
    shutil.copytree(alone, path)
    record = json.loads((path / "run.json").read_text())
    record["fields"]["warmup_power"] = power
    (path / "run.json").write_text(json.dumps(record))
    if not is_saved:
        shutil.rmtree(path / "checkpoints")


def power_of(run_dir):
    return json.loads((run_dir / "run.json").read_text())["fields"]["warmup_power"]


def test_a_run_that_never_saved_gives_way_to_several_processes(alone, tmp_path):
    leave_run(alone, tmp_path / "run", 0.5, is_saved=False)
    train(tmp_path, "--processes", "2")
    assert power_of(tmp_path / "run") == 1
    assert "train | step 2 " in (tmp_path / "worker.1.log").read_text()


@pytest.mark.slow
def test_processes_with_disks_of_their_own_keep_what_the_chief_saved(alone, tmp_path):
    cluster = ",".join(free_addresses(2))
    folders = [tmp_path / "0", tmp_path / "1"]
    with contextlib.ExitStack() as stack:
        processes = []
        for index, folder in enumerate(folders):
            leave_run(alone, folder / "run", [0.5, 0.25][index], is_saved=index == 0)
            options = ["--log-dir", folder, "--cluster", cluster, "--index", index, "--"]
            command = [*TOWERS, "launch", *options, *train_shapes(folder / "run", "--towers", 1)]
            command += [*OPTIONS, "--steps", NUM_STEPS + 2]
            processes.append(stack.enter_context(started(command)))
        for process in processes:
            finish(process)
    assert "with its own warmup_power=0.5" in (folders[0] / "worker.0.log").read_text()
    assert [power_of(folder / "run") for folder in folders] == [0.5, 0.5]


def slurm_task(index):
    """The environment of a task that srun started on this machine, of two."""
    return {
        "SLURM_JOB_ID": str(os.getpid() % 1000), "SLURM_STEP_ID": "0", "SLURM_NTASKS": "2",
        "SLURM_STEP_NUM_TASKS": "2", "SLURM_STEP_NODELIST": "localhost",
        "SLURM_STEP_TASKS_PER_NODE": "2", "SLURM_PROCID": str(index), "SLURM_LOCALID": str(index),
    }  # fmt: skip


def job_replica(ports, index):
    """The environment of a worker of Kubeflow's TFJob, of two."""
    cluster = {"worker": [f"localhost:{port}" for port in ports]}
    task = {"type": "worker", "index": index}
    return {"TF_CONFIG": json.dumps({"cluster": cluster, "task": task, "environment": "cloud"})}


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["slurm", "kubernetes"])
def test_two_processes_that_a_scheduler_started_train_as_one(kind, alone, tmp_path):
    places = {
        "slurm": slurm_task,
        "kubernetes": functools.partial(job_replica, free_ports(2)),
    }
    folders = [tmp_path / "0", tmp_path / "1"]
    with contextlib.ExitStack() as stack:
        processes = []
        for index in (1, 0):
            command = [*TOWERS, *train_shapes(folders[index] / "run", "--towers", 1, *OPTIONS)]
            environment = {**os.environ, **places[kind](index)}
            processes.append(stack.enter_context(started(command, env=environment)))
        for process in processes:
            assert finish(process).startswith("warning: port ")
    helpers.assert_same_weights(weights_of(folders[0] / "run"), weights_of(alone), float64=True)
    for index, folder in enumerate(folders):
        assert steps_of(folder / "run", f"tower_{index}") == REPORTED


# Give worker 1 other arguments than worker 0, as on a machine where another command was typed.
UNEQUAL = """
import json, os, sys
other = json.loads(sys.argv[1])
if json.loads(os.environ["TF_CONFIG"])["task"]["index"]:
    sys.argv += other
del sys.argv[1]
from towers.scripts.main import main
sys.exit(main())
"""
DIFFERENT = {
    "seed": (["--seed", "5"], "worker 1 has seed 5, worker 0 has 0"),
    "rate": (["--set", "learning_rate=0.1"], "worker 1 has --set learning_rate 0.1, worker 0 has"),
    "batch": (["--batch-size", "50"], "worker 1 has --set batch_size 50, worker 0 has 100"),
    "towers": (["--towers", "2"], "worker 1 has towers (--towers) 2, worker 0 has 1"),
    "precision": (["--precision", "float32"], "worker 1 has precision float32, worker 0 has"),
    "steps": (["--steps", "7"], "worker 1 has steps 7, worker 0 has 40"),
    "data": (["--data", "DATA"], "worker 1 has the data's content"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", DIFFERENT)
def test_workers_with_unequal_settings_are_refused_and_named(name, tmp_path):
    other, expected = DIFFERENT[name]
    other = [str(other_images(tmp_path)) if one == "DATA" else one for one in other]
    addresses = free_addresses(2)
    command = [sys.executable, "-c", UNEQUAL, json.dumps(other)]
    command += train_shapes(tmp_path / "run", "--towers", 1, *OPTIONS)
    with contextlib.ExitStack() as stack:
        both = [
            stack.enter_context(started(command, env=worker_environment(addresses, index, {})))
            for index in range(2)
        ]
        for process in both:
            assert expected in finish(process, code=2)
    assert not (tmp_path / "run").exists()


def other_images(folder):
    """Returns a folder with the embedded images, of which one byte is another."""
    (folder / "data").mkdir()
    for path in shapes.folder().glob("*.gz"):
        content = bytearray(gzip.decompress(path.read_bytes()))
        content[-1] ^= 1
        (folder / "data" / path.stem).write_bytes(content)
    return folder / "data"


def refuse(capfd, *arguments):
    """Runs a command and returns how it refuses."""
    try:
        code = main([str(argument) for argument in arguments])
    except SystemExit as leaving:  # argparse.
        code = leaving.code
    error = capfd.readouterr().err
    assert code == 2, error
    assert "Traceback" not in error
    return error


TRAIN = ["--", "train", "shapes", "--steps", "1"]
WRONG = {
    "no process": (["--processes", "0", *TRAIN], "whole number of at least 1"),
    "no command": ([], "towers launch only starts `train`"),
    "nothing behind the dashes": (["--"], "Received nothing"),
    "another command": (["--", "evaluate", "runs/shapes"], "Received evaluate runs/shapes"),
    "no port": (["--cluster", "a,b:2", "--index", "0", *TRAIN], "host:port", "'a'"),
    "no host": (["--cluster", "a:1,:2", "--index", "0", *TRAIN], "host:port", "':2'"),
    "port in words": (["--cluster", "a:b,c:2", "--index", "0", *TRAIN], "'a:b'"),
    "too large a port": (["--cluster", "a:65536,c:2", "--index", "0", *TRAIN], "1 to 65535"),
    "index past the end": (["--cluster", "a:1,b:2", "--index", "2", *TRAIN], "from 0 to 1"),
    "negative index": (["--cluster", "a:1,b:2", "--index=-1", *TRAIN], "from 0 to 1"),
    "cluster without index": (["--cluster", "a:1,b:2", *TRAIN], "position with --index"),
    "index without cluster": (["--index", "0", *TRAIN], "give both"),
    "cluster of nobody": (["--cluster", "", "--index", "0", *TRAIN], "all must differ"),
    "several processes of a cluster": (
        ["--cluster", "a:1,b:2", "--index", "0", "--processes", "4", *TRAIN],
        "Leave out --processes",
    ),
    "a wrong argument": (["--", "train", "shapes", "--nonsense"], "--nonsense"),
    "no recipe": (["--", "train"], "takes a RECIPE"),
    "GPU twice": (["--gpus", "0,0", *TRAIN], "different numbers", "Received 0,0"),
    "logs in a file": (
        ["--log-dir", os.devnull, *TRAIN],
        f"{os.devnull}: File exists",
    ),
    "GPUs that do not go around": (
        ["--processes", "2", "--gpus", "0,1,2", *TRAIN],
        "3 GPUs for 2 processes",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_input_starts_nothing(name, capfd, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    arguments, *expected = WRONG[name]
    error = refuse(capfd, "launch", *arguments)
    for text in expected:
        assert text in error
    assert not list(tmp_path.rglob("worker.*"))


def test_where_a_scheduler_starts_the_processes_there_is_nothing_to_launch(capfd, monkeypatch):
    for name, value in {**slurm_task(1), "TF_CONFIG": ""}.items():
        monkeypatch.setenv(name, value)
    assert "already makes this process number 1 of 2" in refuse(capfd, "launch", *TRAIN)


REFUSED_BY_WORKERS = {
    "absent GPUs": (["--gpus", "0,1"], ["shapes"], "is not there"),
    "a carried state": ([], ["stories"], "stories carries a state from batch to batch"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", REFUSED_BY_WORKERS)
def test_what_the_workers_refuse_is_told(name, tmp_path):
    launch_options, train_options, expected = REFUSED_BY_WORKERS[name]
    command = [*TOWERS, "launch", "--log-dir", tmp_path, *launch_options]
    command += ["--", "train", "--run-dir", tmp_path / "run", *train_options, "--steps", "1"]
    with started(command) as process:
        output = finish(process, code=2)
    assert "towers: error: worker " in output and expected in output
    assert not list(tmp_path.glob("run/*"))  # A worker that is ended may leave the empty folder.

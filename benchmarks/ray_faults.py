"""What a lost worker, node, disk or driver costs a training on Ray, by real faults.

    python -m benchmarks.ray_faults worker chief --times 10

Each case starts a Ray cluster of several nodes in a network of its own, each node with a disk of
its own for the working folder, and trains a recipe there by `towers launch --ray`, with checkpoints
every five steps in a third place. It does the harm, as often as asked for in one training if that
goes on each time, and waits for the end. It prints the seconds until the first line about it and
until the next step, the updates that were made again, and how far the end is from that of one
process with two towers; then a table of the medians. It needs Linux, and root or user namespaces.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import functools
import itertools
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import towers
from towers.ground.quiet import import_tensorflow_quietly
from towers.scripts.launching.network import enter_private_network, unshare

FAULT_STEP, BETWEEN, PATIENCE = 22, 20, 600  # A fault at steps 22, 42, 62, ...
PAUSE_SECONDS = 60
DISK = "size=64m"  # Of a node's working folder, in memory.
CLONE_NEWNS, MS_REC, MS_PRIVATE, MNT_DETACH = 0x20000, 0x4000, 0x40000, 2  # unshare(2), mount(2)
WITHOUT_SECONDS = 120  # For which a lost node may be replaced; ten minutes by default.
LAUNCH = """
import sys
from towers.scripts.launching import on_ray
from towers.scripts.main import main
on_ray.NODES_SECONDS = {}
sys.exit(main())
"""
VERBOSE = "--verbose"
STEP = re.compile(r"pid=(\d+)\b.*? worker (\d+): train \| step (\d+) ")
# What each process of Ray's imports first: SIGUSR1 raises an exception in its training.
RAISING = """
import ctypes, signal, threading
def fail(*_):
    for thread in threading.enumerate():
        if thread.name.startswith("TrainingThread"):
            kind = ctypes.py_object(ArithmeticError)
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident), kind)
signal.signal(signal.SIGUSR1, fail)
"""
NOTICED = re.compile(r"FailurePolicy|has ended|died|Error|killed|removed|marked dead|interrupt")


def start_nodes(folder: Path, count: int) -> tuple[Any, dict[str, Any]]:
    """Starts a Ray cluster; returns it, and its nodes by their addresses.

    Args:
        folder: for what all nodes see; its part `work` is another disk on each.
        count: of nodes that can each hold a worker, beside that of the driver.
    """
    from ray.cluster_utils import Cluster

    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_memory_monitor_refresh_ms", "0")  # Others may fill the memory.
    os.makedirs(os.path.join(tempfile.gettempdir(), "ray"), exist_ok=True)
    work = folder / "work"
    work.mkdir()
    head = {"num_cpus": 0, "node_ip_address": "127.0.0.1", "include_dashboard": False}
    head |= {"object_store_memory": 10**8, "temp_dir": str(folder / "r")}
    cluster = Cluster(initialize_head=True, connect=False, head_node_args=head)

    nodes = {}
    for number in range(count):
        see_empty_disk(work)  # Of a node, and of what it starts.
        address = f"127.0.0.{2 + number}"
        nodes[address] = cluster.add_node(
            num_cpus=1, node_ip_address=address, object_store_memory=10**8
        )
    see_empty_disk(work)
    return cluster, nodes


def see_empty_disk(work: Path) -> None:
    """Lets this thread, and what it starts from now on, see an empty disk at a folder."""
    unshare(CLONE_NEWNS)
    libc = ctypes.CDLL(None, use_errno=True)
    private = libc.mount(b"none", b"/", b"", MS_REC | MS_PRIVATE, b"")
    if private or libc.mount(b"tmpfs", os.fsencode(work), b"tmpfs", 0, DISK.encode()):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


class Training:
    """A cluster, and a training on it.

    Args:
        folder: for its files.
        num_nodes: nodes that can each hold a worker.
        workers: as `--workers` takes it.
        times: how often there is a fault.

    Attributes:
        work: the working folder of the command and of each node, another disk on each.
        kept: the folder of checkpoints.
        lines: (time, text) of what the command printed.
        workers: the id of each worker's process.
    """

    def __init__(self, folder: Path, num_nodes: int, workers: str, times: int):
        self.work, self.kept = folder / "work", folder / "kept"
        (folder / "sitecustomize.py").write_text(RAISING)
        os.environ["PYTHONPATH"] = os.pathsep.join([str(folder), *filter(None, sys.path)])
        self.lines: list[tuple[float, str]] = []
        self.workers: dict[int, int] = {}
        self.cluster, self.nodes = start_nodes(folder, num_nodes)
        launch = ["launch", "--ray", self.cluster.address, "--workers", workers]
        launch += ["--max-restarts", str(times), "--storage", str(self.kept)]
        launch += ["--", *train(self.work / "run", 1, times)]
        self.command = [sys.executable, "-c", LAUNCH.format(WITHOUT_SECONDS), *launch]
        self.driver = self.start()

    def start(self) -> subprocess.Popen[str]:
        """Starts the command, whose lines are collected."""
        driver = subprocess.Popen(
            self.command, cwd=self.work, text=True, start_new_session=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip

        def read() -> None:
            for line in driver.stdout or ():
                self.lines.append((time.monotonic(), line.rstrip()))
                if VERBOSE in sys.argv:
                    print(f"{time.monotonic():.1f} {line.rstrip()}", flush=True)
                match = STEP.search(line)
                if match:
                    self.workers[int(match[2])] = int(match[1])

        threading.Thread(target=read, daemon=True).start()
        return driver

    def steps(self) -> list[tuple[float, int]]:
        """Returns the time and the number of each step that the chief reported."""
        found = ((at, STEP.search(line)) for at, line in list(self.lines))
        return [(at, int(match[3])) for at, match in found if match and match[2] == "0"]

    def wait_for_step(self, number: int) -> None:
        """Returns once the chief has reported a step."""
        limit = time.monotonic() + PATIENCE
        while not any(step >= number for _, step in self.steps()):
            if self.driver.poll() is not None or time.monotonic() > limit:
                raise RuntimeError("\n".join(line for _, line in self.lines[-40:]))
            time.sleep(0.05)

    def node_of(self, worker: int) -> int:
        """Returns the id of the process that started a worker."""
        status = Path(f"/proc/{self.workers[worker]}/status").read_text()
        return int(re.findall(r"PPid:\s*(\d+)", status)[0])

    def remove_node(self, worker: int) -> None:
        """Kills the node of a worker; its disk is lost with it."""
        raylet = Path(f"/proc/{self.node_of(worker)}/cmdline").read_text()
        (address,) = re.findall(r"node_ip_address=([\d.]+)", raylet)
        self.cluster.remove_node(self.nodes[address], allow_graceful=False)

    def close(self) -> None:
        """Ends the command and the cluster."""
        if self.driver.poll() is None:
            os.killpg(self.driver.pid, signal.SIGKILL)
        self.driver.wait()
        self.cluster.shutdown()
        while not ctypes.CDLL(None).umount2(os.fsencode(self.work), MNT_DETACH):
            pass  # One for each node.


def kill(worker: int, number: int = signal.SIGKILL) -> Callable[[Training], None]:
    """Returns the fault of a worker that gets a signal."""
    return lambda training: os.kill(training.workers[worker], number)


def pause(training: Training) -> None:
    """Lets a worker stand still for a while."""
    kill(1, signal.SIGSTOP)(training)
    time.sleep(PAUSE_SECONDS)
    kill(1, signal.SIGCONT)(training)


def fill_disk(training: Training) -> None:
    """Fills the chief's disk, and frees it once a worker has told of it."""
    root = Path(f"/proc/{training.node_of(0)}/root")  # As that node sees it.
    filler, told = root / training.work.relative_to("/") / "filler", len(training.lines)
    with open(filler, "wb", buffering=0) as file:
        for size in (2**20, 1):  # What is left of a page too.
            with contextlib.suppress(OSError):
                while True:
                    file.write(b"\0" * size)
    while training.driver.poll() is None and not any(
        "No space" in one for _, one in training.lines[told:]
    ):
        time.sleep(0.1)
    filler.unlink()


def kill_driver(training: Training) -> None:
    """Kills the command, and gives it again."""
    training.driver.kill()
    training.driver.wait()
    training.driver = training.start()


def interrupt(training: Training) -> None:
    """Presses Ctrl-C, and gives the command again."""
    training.driver.send_signal(signal.SIGINT)
    code = training.driver.wait(PATIENCE)
    if code != 128 + signal.SIGINT:
        raise RuntimeError(f"it ended with {code}")
    training.driver = training.start()


class Case(NamedTuple):
    """A fault.

    Attributes:
        fault: does the harm.
        num_nodes: as for `Training`, for one fault.
        workers: as for `Training`.
        spares: nodes more for each fault; None if there cannot be another one.
        ends_well: whether the training reaches its end.
        tolerance: how far its end may be from that without a fault.
    """

    fault: Callable[[Training], None]
    num_nodes: int = 2
    workers: str = "2"
    spares: int | None = 0
    ends_well: bool = True
    tolerance: float = 0.0


CASES = {
    "none": Case(lambda training: None),
    "worker": Case(kill(1)),
    "chief": Case(kill(0)),
    "spare": Case(lambda training: training.remove_node(0), num_nodes=3, spares=1),
    "elastic": Case(
        lambda training: training.remove_node(0), workers="1,2", spares=None, tolerance=1e-12
    ),
    "without": Case(lambda training: training.remove_node(0), spares=None, ends_well=False),
    "paused": Case(pause),
    "exception": Case(kill(1, signal.SIGUSR1)),
    "disk": Case(fill_disk),
    "driver": Case(kill_driver),
    "interrupt": Case(interrupt),
}


def steps_for(times: int) -> int:
    """Returns the steps of a training with so many faults."""
    return FAULT_STEP + BETWEEN * times


def train(run_dir: Path, towers: int, times: int) -> list[str]:
    """Returns the arguments of a training with so many towers in each process, and faults."""
    options = ["--run-dir", str(run_dir), "--steps", str(steps_for(times))]
    options += ["--towers", str(towers)]
    options += ["--deterministic", "--precision", "float64", "--report-every", "1"]
    return ["train", "shapes", *options, "--checkpoint-every", "5", "--evaluate-every", "1000"]


def arrays_of(folder: Path, step: int) -> list[np.ndarray]:
    """Returns the arrays of the newest checkpoint below a folder, which is that of a step."""
    newest = max(folder.rglob("step-*.ckpt.npz"), key=lambda path: path.name)
    checkpoint = towers.checkpoints.CheckpointFolder(newest.parent).latest()
    if checkpoint is None or checkpoint.step != step:
        raise RuntimeError(f"the run ended at {checkpoint and checkpoint.step}")
    return [saved.array for group in checkpoint.groups.values() for saved in group]


@functools.cache
def try_alone(times: int) -> list[np.ndarray]:
    """Returns the arrays at the end of one process with two towers, after the steps of a case."""
    with tempfile.TemporaryDirectory() as folder:
        arguments = train(Path(folder) / "run", 2, times)
        command = [sys.executable, "-m", "towers.scripts.main", *arguments]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        return arrays_of(Path(folder), steps_for(times))


def try_case(case: Case, folder: Path, times: int) -> tuple[list[dict[str, Any]], float]:
    """Returns what each fault of one training cost, and how far its end is off.

    Raises:
        RuntimeError: the training does not end as it should.
    """
    num_nodes = case.num_nodes + (times - 1) * (case.spares or 0)
    training = Training(folder, num_nodes, case.workers, times)
    try:
        began = []
        for number in range(times):
            training.wait_for_step(FAULT_STEP + BETWEEN * number)
            began.append(time.monotonic())
            case.fault(training)
        code = training.driver.wait(PATIENCE)
        if (code == 0) != case.ends_well:
            raise RuntimeError("\n".join(line for _, line in training.lines[-60:]))
        spans = zip(began, [*began[1:], time.monotonic()], strict=True)
        found = [describe(training, *span) for span in spans]
        if not case.ends_well:
            return found, 0.0
        actual, expected = arrays_of(training.kept, steps_for(times)), try_alone(times)
        return found, max(map(difference, actual, expected))
    finally:
        training.close()


def describe(training: Training, began: float, ended: float) -> dict[str, Any]:
    """Returns what a fault cost that began at a time, up to another or the end at a time."""
    lines = [(at, line) for at, line in training.lines if began <= at < ended]
    before = max(step for at, step in training.steps() if at < began)
    steps = [(began, before), *(one for one in training.steps() if began <= one[0] < ended)]
    # The longest wait for a step: some more may come before a stop.
    pairs = list(itertools.pairwise(steps))
    waits = [now[0] - last[0] for last, now in pairs]
    number = waits.index(max(waits)) + 1 if waits else 0
    reached, again = max(step for _, step in steps[: max(number, 1)]), steps[number]
    return {
        "noticed": next((round(at - began, 1) for at, line in lines if NOTICED.search(line)), None),
        "next step": round(again[0] - began, 1) if number else None,
        "updates again": max(0, reached + 1 - again[1]) if number else None,
        "ended": round(ended - began, 1),
        "code": training.driver.returncode,
        "last line": next(line for _, line in reversed(lines) if "Cleaner" not in line),
    }


def main() -> int:
    """Tries the cases, prints a line for each and a table; returns 0 if all ended as expected."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", nargs="*", default=list(CASES), metavar="CASE")
    parser.add_argument("--times", type=int, default=1)
    parser.add_argument(VERBOSE, action="store_true", help="print what the command printed")
    arguments = parser.parse_args()
    enter_private_network()
    import_tensorflow_quietly()
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in arguments.cases}
    code = 0
    for name in arguments.cases:
        case, times = CASES[name], arguments.times
        for count in [1] * times if case.spares is None else [times]:
            try:
                with tempfile.TemporaryDirectory(prefix="r") as folder:
                    every, off = try_case(case, Path(folder), count)
            except (RuntimeError, OSError, subprocess.TimeoutExpired) as error:
                print(f"{name}: failed: {error}", flush=True)
                code = 1
                continue
            code |= off > case.tolerance
            found[name] += [one | {"off": off} for one in every]
            print(*found[name], row_of(name, found[name]), sep="\n", flush=True)
    print("| Fault | Times | s to notice | s to the next step | Updates again | Off |")
    print("|---|---|---|---|---|---|", *map(row_of, found, found.values()), sep="\n")
    return code


def difference(array: np.ndarray, expected: np.ndarray) -> float:
    """Returns the largest difference, as a fraction of the largest expected value."""
    one, other = np.asarray(array, np.float64), np.asarray(expected, np.float64)
    return float(np.max(np.abs(one - other)) / np.max(np.abs(other), initial=1e-30))


def row_of(name: str, found: list[dict[str, Any]]) -> str:
    """Returns the row of a case: each number's least, median and largest value."""
    cells = [name, str(len(found))]
    for key in ("noticed", "next step", "updates again", "off"):
        values = sorted(one[key] for one in found if one.get(key) is not None)
        text = f"{values[len(values) // 2]:.3g}" if values else "-"
        if values and values[0] != values[-1]:
            text += f" ({values[0]:.3g} to {values[-1]:.3g})"
        cells.append(text)
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    sys.exit(main())

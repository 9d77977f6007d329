"""What more processes cost: memory, seconds to join, time and bytes of a step, the chief's share.

    python -m benchmarks.many_processes 2 4 8 16
    python -m benchmarks.many_processes --ray 2 2 2

Each number of processes trains the same model on this machine, in a network of its own, whose
loopback counts all bytes; with --ray also as workers of Ray's, in turn. Then the measured bytes on
paper: the time of a ring over fast networks.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from towers.ground.quiet import import_tensorflow_quietly
from towers.scripts.launching.cluster import free_ports
from towers.scripts.launching.network import enter_private_network
from towers.scripts.launching.processes import worker_environment
from towers.scripts.options.flags import Parser, reader
from towers.scripts.options.setting import Parts, setting_of

STEPS, WIDTH, INPUTS, ROWS = 40, 1000, 500, 64
PARAMETERS = 25.6e6  # Of a ResNet-50.
ONE_CORE = {"TF_NUM_INTRAOP_THREADS": "1"}
NETWORKS, GPUS, GPUS_OF_A_MACHINE = (100e9, 400e9), (64, 512), 8


def loopback_bytes() -> int:
    """Returns the bytes that went through the loopback of this network."""
    lines = Path("/proc/net/dev").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.strip().startswith("lo:"))


def work(config: dict[str, str]) -> None:
    """Trains as one of several processes; the chief writes what all found.

    Args:
        config: `found`, the path of the file.
    """
    import_tensorflow_quietly()
    import keras
    import numpy as np

    import towers

    class Notes(keras.callbacks.Callback):
        """The time, the processor's time and the bytes after each epoch."""

        def __init__(self) -> None:
            super().__init__()
            self.found: list[tuple[float, float, int]] = []

        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            self.found.append((time.monotonic(), time.process_time(), loopback_bytes()))

    began = time.monotonic()
    processes = towers.processes.join_processes()
    joined = time.monotonic() - began
    keras.utils.set_random_seed(0)
    layers = [keras.Input((INPUTS,)), keras.layers.Dense(WIDTH, "relu"), keras.layers.Dense(1)]
    model = keras.Sequential(layers)
    model.compile("sgd", "mse")
    notes, rows = Notes(), ROWS * processes.count
    x = np.ones((rows * STEPS, INPUTS), "float32")
    towers.fit(model, x, x[:, :1], batch_size=rows, epochs=3, verbose=0, callbacks=[notes])
    (_, (at, cpu, sent), (end, cpu_end, sent_end)) = notes.found
    own = {
        "joined": joined,
        "memory": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "ms": (end - at) / STEPS * 1e3,
        "cpu": (cpu_end - cpu) / STEPS * 1e3,
        "bytes": (sent_end - sent) / STEPS,
        "gradient": 4 * model.count_params(),
    }
    every = [json.loads(one) for one in processes.share(json.dumps(own).encode())]
    if processes.is_chief:
        Path(config["found"]).write_text(json.dumps(every))


def measure_on_ray(count: int) -> list[dict[str, float]]:
    """Returns what each of so many workers of Ray's found."""
    import ray
    from ray.train import RunConfig, ScalingConfig
    from ray.train.tensorflow import TensorflowTrainer

    variables = {**ONE_CORE, "PYTHONPATH": os.pathsep.join(sys.path)}
    ray.init("local", num_cpus=count, runtime_env={"env_vars": variables}, logging_level="error")
    with tempfile.TemporaryDirectory() as folder:
        found = f"{folder}/found"
        TensorflowTrainer(
            work,
            train_loop_config={"found": found},
            scaling_config=ScalingConfig(num_workers=count),
            run_config=RunConfig(storage_path=folder),
        ).fit()
        ray.shutdown()
        every: list[dict[str, float]] = json.loads(Path(found).read_text())
    return every


def measure(count: int) -> list[dict[str, float]]:
    """Returns what each of so many processes found."""
    addresses = [f"127.0.0.1:{port}" for port in free_ports(count)]
    with tempfile.TemporaryDirectory() as folder:
        found = Path(folder) / "found"
        command = [sys.executable, "-m", "benchmarks.many_processes", "--worker", str(found)]
        started = []
        for index in range(count):
            environment = worker_environment(addresses, index, ONE_CORE)
            started.append(subprocess.Popen(command, env=environment))
        codes = [process.wait() for process in started]
        if any(codes):
            raise RuntimeError(f"the processes ended with {codes}")
        every: list[dict[str, float]] = json.loads(found.read_text())
    return every


def row(name: str, every: list[dict[str, float]]) -> str:
    """Returns the row of what each of some processes found."""
    count, chief, total = len(every), every[0], sum(one["cpu"] for one in every)
    return (
        f"| {name} | {sum(one['memory'] for one in every) / count:.0f} "
        f"| {max(one['joined'] for one in every):.1f} | {chief['ms']:.1f} | {total / count:.1f} "
        f"| {chief['bytes'] / count / 1e6:.2f} | {chief['bytes'] / count / chief['gradient']:.2f} "
        f"| {chief['cpu'] / total * count:.2f} |"
    )


def on_paper() -> str:
    """Returns the milliseconds that a ring of machines needs for the gradients of a ResNet-50."""
    lines = []
    for gpus in GPUS:
        machines = gpus // GPUS_OF_A_MACHINE
        sent = 2 * (machines - 1) / machines * 4 * PARAMETERS
        times = " | ".join(f"{8 * sent / network * 1e3:.1f}" for network in NETWORKS)
        lines.append(f"| {gpus} | {sent / 1e6:.0f} | {times} |")
    return "\n".join(lines)


def main() -> None:
    """Prints the tables."""
    parser = Parser(prog="python -m benchmarks.many_processes", description=__doc__)
    numbers = reader(setting_of(Parts))
    parser.add_argument("counts", nargs="*", type=numbers, default=[2, 4, 8, 16], metavar="N")
    parser.add_argument("--ray", action="store_true", help="also as workers of Ray's")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        return work({"found": arguments.worker})
    enter_private_network()
    print("| Processes | MB each | s to join | ms a step | CPU ms each | MB a step each "
          "| of the gradients | chief's CPU |")  # fmt: skip
    print("|---|---|---|---|---|---|---|---|")
    for count in arguments.counts:
        print(row(f"{count}", measure(count)), flush=True)
        if arguments.ray:
            print(row(f"{count} on Ray", measure_on_ray(count)), flush=True)
    print("\n| GPUs | MB a step and machine | ms at 100 Gbit/s | ms at 400 Gbit/s |")
    print(f"|---|---|---|---|\n{on_paper()}")
    return None


if __name__ == "__main__":
    main()

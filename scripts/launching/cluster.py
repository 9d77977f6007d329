"""The options of `towers launch`, and the processes that it starts here: addresses and GPUs."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import towers
from towers.scripts.options.setting import (
    AT_LEAST_1,
    NOT_BLANK,
    NOT_NEGATIVE,
    Bound,
    Flag,
    Folder,
    Numbers,
    Parts,
)

DEFAULT_PROCESSES = 2
DEVICES = Path("/dev")
WORKERS = Bound("whole numbers of at least 1, such as 2,4", AT_LEAST_1.holds)


@dataclasses.dataclass(frozen=True)
class LaunchOptions:
    """The processes to start.

    Attributes:
        command_line: `train` with its arguments, the same on every machine.
        processes: number of processes on this machine (default: one per GPU, or 2).
        gpus: GPUs to distribute among the processes, in order (default: all; none with --cluster).
        log_dir: folder of worker.0.log, ...
        cluster: addresses of several machines, with a process on each (default: this machine).
        index: position of this machine's address in --cluster, from 0 (default: none).
        ray: train in workers of this Ray cluster: host:port, auto, or local to start one here
            (default: without Ray).
        workers: number of Ray workers, or a minimum and a maximum such as 2,4 (default: 2).
        gpus_per_worker: GPUs of each Ray worker.
        max_restarts: how often Ray restarts the workers after one is lost.
        storage: folder or address (s3://...) that keeps the run if the machines share no disk
            (default: they share the run directory).
    """

    command_line: Annotated[
        tuple[str, ...], "-- train ...", Flag(is_argument=True, nargs="...")
    ] = ()
    processes: Parts | None = None
    gpus: Annotated[Numbers | None, "LIST"] = None
    log_dir: Folder = "logs"
    cluster: Annotated[tuple[str, ...] | None, "HOST:PORT,..."] = None
    index: Annotated[int | None, "I"] = None
    ray: Annotated[str | None, "ADDRESS"] = None
    workers: Annotated[tuple[int, ...] | None, WORKERS, "N[,N]"] = None
    gpus_per_worker: Annotated[int, NOT_NEGATIVE, "N"] = 0
    max_restarts: Annotated[int, NOT_NEGATIVE, "N"] = 3
    storage: Annotated[str | None, NOT_BLANK, "PATH"] = None


def check_together(options: LaunchOptions) -> None:
    """Raises ValueError for options that have no use with --ray, or none without it."""
    if options.ray is None:
        names = ["workers", "gpus_per_worker", "max_restarts", "storage"]
        use = "can only be used with --ray ADDRESS; give that too, or use --processes"
    else:
        names = ["processes", "gpus", "cluster", "index"]
        use = "cannot be used with --ray; use --workers"
    given = [name for name in names if getattr(options, name) != getattr(LaunchOptions, name)]
    if given:
        flags = ", ".join("--" + name.replace("_", "-") for name in given)
        raise ValueError(f"{flags} {use}.")
    workers = options.workers or ()
    if len(workers) > 2 or sorted(workers) != list(workers):
        raise ValueError(
            "--workers takes a number, or a minimum and a maximum such as 2,4. Received "
            f"{','.join(map(str, workers))}."
        )


def choose_cluster(
    options: LaunchOptions,
    gpus: Sequence[int] | None = None,
    environment: Mapping[str, str] = os.environ,
) -> tuple[Sequence[str], Sequence[int]]:
    """Returns host:port of each process of the training, and the numbers of those to start here.

    By default there is a process for each GPU. In the environment a scheduler may have given this
    process a place.

    Raises:
        ValueError: the options contradict each other, or a scheduler starts the processes.
    """
    place = towers.processes.find_place(environment)
    if place is not None:
        raise ValueError(
            f"TF_CONFIG or Slurm already makes this process number {place.index} of "
            f"{len(place.addresses)}; use towers train instead of towers launch -- train."
        )
    addresses, index = options.cluster, options.index
    if addresses is None:
        if index is not None:
            raise ValueError("--index says which process of --cluster this is; give both.")
        count = options.processes or len(gpus or ()) or DEFAULT_PROCESSES
        return [f"127.0.0.1:{port}" for port in free_ports(count)], range(count)
    count = len(set(map(towers.processes.host_and_port, addresses)))
    if index is None or not 0 <= index < count == len(addresses) or options.processes is not None:
        raise ValueError(
            "--cluster starts one process for each address, and all must differ. Leave out "
            "--processes, and give this machine's position with --index, from 0 to "
            f"{len(addresses) - 1}. Received --cluster {','.join(addresses)} --index {index}."
        )
    return addresses, [index]


def free_ports(count: int) -> list[int]:
    """Returns so many different ports of this machine that are not in use."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


def gpus_here(
    arguments: Sequence[str],
    environment: Mapping[str, str] = os.environ,
    devices: Path = DEVICES,
) -> tuple[int, ...] | None:
    """Returns the numbers of this machine's GPUs; None without any, or if `train` chooses some.

    CUDA_VISIBLE_DEVICES may hide some.
    """
    found = [one.name for one in devices.glob("nvidia[0-9]*")]
    visible = environment.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        found = [one for one in visible.split(",") if one.strip() not in ("", "-1")]
    is_chosen = any(word.startswith("--gpus") for word in arguments)
    return None if is_chosen or not found else tuple(range(len(found)))


def gpu_shares(gpus: Sequence[int] | None, num_processes: int) -> list[list[str]]:
    """Returns the arguments that give each process its GPUs, in order, the same number to each."""
    if gpus is None:
        return [[]] * num_processes
    if min(gpus) < 0 or len(set(gpus)) != len(gpus):
        raise ValueError(
            f"--gpus takes different numbers from 0 on. Received {','.join(map(str, gpus))}."
        )
    if len(gpus) % num_processes:
        raise ValueError(
            f"--gpus must name the same number of GPUs for each process. Received {len(gpus)} "
            f"GPUs for {num_processes} processes."
        )
    size = len(gpus) // num_processes
    shares = [gpus[start : start + size] for start in range(0, len(gpus), size)]
    return [["--gpus", ",".join(map(str, share))] for share in shares]

"""`towers launch`: starts one process per GPU or share of the cores, each with its log.

Starts one process per GPU, or per share of the cores. Each process has its own towers and its part
of every batch; together they train one model, and they end together. With --ray they are workers of
a Ray cluster. If a scheduler starts the processes (srun, Kubernetes), use `towers train` instead.

    towers launch --processes 2 -- train shapes
    towers launch --ray auto --workers 4 --gpus-per-worker 1 -- train shapes
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

import towers
from towers.scripts.launching import cluster, processes, watching
from towers.scripts.launching.cluster import LaunchOptions
from towers.scripts.launching.network import enter_private_network
from towers.scripts.launching.on_ray import launch_on_ray
from towers.scripts.main import read_command
from towers.scripts.shown import show
from towers.scripts.wrong_input import wrong_input

USAGE = "towers launch [options] -- train RECIPE ..."
PRIVATE = "the processes use a private network, which nothing outside can reach"


def run(options: LaunchOptions) -> int:
    """Starts the workers, waits, and returns 0, or the code of the first that failed."""
    with wrong_input():
        arguments = processes.train_arguments(options.command_line)
        cluster.check_together(options)
    if options.ray is not None:
        return launch_on_ray(options, arguments)
    with wrong_input():
        gpus = options.gpus or (None if options.cluster else cluster.gpus_here(arguments))
        addresses, here = cluster.choose_cluster(options, gpus)
        shares = cluster.gpu_shares(gpus, len(here))
        cores = processes.core_share(len(here), read_command(arguments)[1])
        logs = [processes.log_of(options.log_dir, index) for index in here]
    say_what_is_open(options.cluster is None, [addresses[index] for index in here])
    count = f"{len(here)} of {len(addresses)} processes"
    show(f"starting {count}, logs in {options.log_dir}", flush=True)
    workers: list[processes.WorkerProcess] = []
    with watching.forward_signals(functools.partial(watching.send, workers)) as forwarded:
        try:
            for index, share, log in zip(here, shares, logs, strict=True):
                if forwarded:
                    return 128 + forwarded[0]
                command = processes.worker_command([*arguments, *share])
                environment = processes.worker_environment(addresses, index, cores)
                workers.append(processes.WorkerProcess(index, command, environment, log))
            return watching.watch(workers, forwarded)
        finally:
            watching.end(workers)


def say_what_is_open(are_all_here: bool, addresses: Sequence[str]) -> None:
    """Goes into a network without others if all processes are here; says what others reach."""
    why = ""
    if are_all_here:
        try:
            enter_private_network()
            return show(PRIVATE, flush=True)
        except OSError as error:
            why = f" (this system allows no private network: {error.strerror or error})"
    return show(towers.processes.exposure(addresses, why), flush=True, colour="yellow")

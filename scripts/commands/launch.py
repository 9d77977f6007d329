"""`towers launch`: one process per GPU or share of the cores, each with its log, ended together.

Starts one process per GPU, or per share of the cores. Each process has its own towers and its part
of every batch; together they train one model. With --ray they are workers of a Ray cluster. Where a
scheduler starts the processes (srun, Kubernetes), write `towers train` instead.

    towers launch --processes 2 -- train shapes
    towers launch --ray auto --workers 4 --gpus-per-worker 1 -- train shapes
"""

from __future__ import annotations

import towers
from towers.scripts.launching.cluster import (
    Cluster,
    check_together,
    choose_cluster,
    gpu_shares,
    gpus_here,
)
from towers.scripts.launching.network import enter_private_network
from towers.scripts.launching.on_ray import launch_on_ray
from towers.scripts.launching.options import LaunchOptions
from towers.scripts.launching.processes import (
    WorkerProcess,
    make_log_dir,
    train_arguments,
    worker_command,
    worker_environment,
)
from towers.scripts.launching.watching import forward_signals, watch
from towers.scripts.shown import show
from towers.scripts.wrong_input import wrong_input

USAGE = "towers launch [options] -- train RECIPE ..."
GONE = dict.fromkeys(
    ("--nnodes", "--node-rank", "--coordinator", "--port"),
    " Several machines: --ray ADDRESS; or --cluster HOST:PORT,... with --index I on each; or srun",
)
PRIVATE = "the processes talk in a network of their own, which nothing outside reaches"


def run(options: LaunchOptions) -> int:
    """Starts the workers, waits, and returns 0, or the code of the first that failed."""
    with wrong_input():
        arguments = train_arguments(options.command_line)
        check_together(options)
    if options.ray is not None:
        return launch_on_ray(options, arguments)
    with wrong_input():
        command = worker_command(arguments)
        log_dir = make_log_dir(options.log_dir)
        gpus = options.gpus or (None if options.cluster else gpus_here(arguments))
        cluster = choose_cluster(options, gpus)
        addresses, indices = cluster
        shares = gpu_shares(gpus, len(indices))
    say_what_is_open(cluster)
    show(f"starting {len(indices)} of {len(addresses)} processes, logs in {log_dir}", flush=True)
    workers: list[WorkerProcess] = []
    with forward_signals(workers) as forwarded:
        for index, share in zip(indices, shares, strict=True):
            if forwarded:
                return 128 + forwarded[0]
            environment = worker_environment(addresses, index, len(indices))
            with wrong_input():  # Such as a log that cannot be written.
                workers.append(WorkerProcess(index, command + share, environment, log_dir))
        return watch(workers, forwarded)


def say_what_is_open(cluster: Cluster) -> None:
    """Goes into a network without others if all processes are here; says what others reach."""
    why = ""
    if cluster.are_all_here:
        try:
            enter_private_network()
            return show(PRIVATE, flush=True)
        except OSError as error:
            why = f" (this system gives no network of its own: {error.strerror or error})"
    line = towers.processes.exposure([cluster.addresses[index] for index in cluster.here], why)
    return show(line, flush=True, colour="yellow")

"""`towers launch`: one process per GPU or share of the cores, each with its log, ended together.

Starts one process per GPU, or per share of the cores. Each process has its own towers and its part
of every batch; together they train one model. Under Slurm's srun, and where TF_CONFIG names a
cluster (Kubernetes), it starts the process of its place.

    towers launch --processes 2 -- train shapes
    towers launch --nnodes 2 --node-rank 0 --coordinator 10.0.0.1:6000 -- train shapes
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from towers.scripts.launching.addresses import (
    LaunchOptions,
    choose_cluster,
    gpu_shares,
    warn_of_shared_gpus,
)
from towers.scripts.launching.exposure import closed_network, warn_of_open_ports
from towers.scripts.launching.processes import (
    WorkerProcess,
    make_log_dir,
    worker_command,
    worker_environment,
)
from towers.scripts.launching.watching import forward_signals, watch
from towers.scripts.shown import show
from towers.scripts.wrong_input import wrong_input

USAGE = "towers launch [options] -- train RECIPE ..."


def run(options: LaunchOptions) -> int:
    """Starts the workers, waits, and returns 0, or the code of the first that failed."""
    with wrong_input():
        worker_command(options.command_line)
        log_dir = make_log_dir(options.log_dir)
        cluster = choose_cluster(options)
        addresses, indices = cluster.addresses, cluster.here
        shares = gpu_shares(options.gpus, len(indices))
    warn_of_shared_gpus(options, len(indices))
    with contextlib.ExitStack() as stack:
        network: Sequence[int] = ()
        if cluster.are_all_here:
            network = stack.enter_context(closed_network(addresses))
        else:
            warn_of_open_ports([addresses[index] for index in indices])
        show(
            f"starting {len(indices)} of {len(addresses)} processes, logs in {log_dir}", flush=True
        )
        workers: list[WorkerProcess] = []
        forwarded = stack.enter_context(forward_signals(workers))
        command = worker_command(options.command_line, network)
        for index, share in zip(indices, shares, strict=True):
            if forwarded:
                return 128 + forwarded[0]
            environment = worker_environment(addresses, index, len(indices))
            with wrong_input():  # Such as a log that cannot be written.
                worker = WorkerProcess(index, command + share, environment, log_dir, network)
            workers.append(worker)
        return watch(workers, forwarded)

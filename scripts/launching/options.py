"""The options of `towers launch`."""

from __future__ import annotations

import dataclasses
from typing import Annotated

from towers.scripts.options.setting import (
    AT_LEAST_1,
    NOT_BLANK,
    NOT_NEGATIVE,
    Flag,
    Folder,
    Numbers,
    Parts,
)


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
    workers: Annotated[tuple[int, ...] | None, AT_LEAST_1, "N[,N]"] = None
    gpus_per_worker: Annotated[int, NOT_NEGATIVE, "N"] = 0
    max_restarts: Annotated[int, NOT_NEGATIVE, "N"] = 3
    storage: Annotated[str | None, NOT_BLANK, "PATH"] = None

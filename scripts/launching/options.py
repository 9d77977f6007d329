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
        gpus: GPUs to deal to the processes, in order (default: all; none with --cluster).
        log_dir: folder of worker.0.log, ...
        cluster: several machines, a process on each (default: this one).
        index: position of this machine's address in --cluster, from 0 (default: none).
        ray: train in workers of this Ray cluster: host:port, auto, or local to start one here
            (default: without Ray).
        workers: number of Ray workers, or the least and the most, such as 2,4 (default: 2).
        gpus_per_worker: GPUs of each Ray worker.
        max_restarts: how often Ray starts the workers again after one was lost.
        storage: folder or address (s3://...) where the run is kept if the machines share none
            (default: the run directory is on all of them).
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

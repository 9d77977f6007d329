"""The options of `towers launch`."""

from __future__ import annotations

import dataclasses
from typing import Annotated

from towers.scripts.options.setting import Flag, Folder, Numbers, Parts


@dataclasses.dataclass(frozen=True)
class LaunchOptions:
    """The processes to start.

    Attributes:
        command_line: `train` with its arguments, the same on every machine.
        processes: number of processes on this machine (default: one per GPU of --gpus, or 2).
        gpus: GPUs to deal to the processes, in order (default: all).
        log_dir: folder of worker.0.log, ...
        cluster: several machines, a process on each (default: this one).
        index: position of this machine's address in --cluster, from 0 (default: none).
    """

    command_line: Annotated[
        tuple[str, ...], "-- train ...", Flag(is_argument=True, nargs="...")
    ] = ()
    processes: Parts | None = None
    gpus: Annotated[Numbers | None, "LIST"] = None
    log_dir: Folder = "logs"
    cluster: Annotated[tuple[str, ...] | None, "HOST:PORT,..."] = None
    index: Annotated[int | None, "I"] = None

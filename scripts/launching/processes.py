"""The processes that `towers launch` starts: their command, environment and logs.

They do not outlive their launcher.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from towers.ground.cores import num_cores
from towers.scripts.main import main, read_command
from towers.scripts.training.options import TrainOptions

LAST_LINES = 5
WAITING = "waiting for "  # The beginning of a line about processes that are missing.
# The paths of this program, since `-m` would look for it in the working folder first.
WORKER_PROGRAM = (
    "import sys; sys.path[:] = {!r}; "
    "from towers.scripts.launching.processes import run_worker; sys.exit(run_worker({}))"
)
LOOK_SECONDS = 1.0  # Between two looks of a worker at its launcher.
SAVE_SECONDS = 60.0  # A worker that takes longer waits for a dead one, and is killed.


def log_of(folder: str, index: int) -> Path:
    """Returns the path of a worker's log, and makes it if it is missing."""
    path = Path(folder) / f"worker.{index}.log"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.open("ab").close()
    return path


def train_arguments(command_line: Sequence[str]) -> list[str]:
    """Returns `train` with its arguments, which may stand behind `--`.

    Raises:
        ValueError: it is another command, or its arguments are wrong.
    """
    arguments = list(command_line)
    arguments = arguments[1:] if arguments[:1] == ["--"] else arguments
    if arguments[:1] != ["train"]:
        raise ValueError(
            "towers launch only starts `train`: write --, then train and its arguments. Received "
            f"{' '.join(arguments) or 'nothing'}."
        )
    read_command(arguments)
    return arguments


def worker_command(arguments: Sequence[str]) -> list[str]:
    """Returns the command of every worker, of the arguments of `towers`."""
    paths = [os.path.abspath(entry) for entry in sys.path]
    return [sys.executable, "-c", WORKER_PROGRAM.format(paths, os.getpid()), *arguments]


def worker_environment(
    addresses: Sequence[str], index: int, core_share: Mapping[str, str]
) -> dict[str, str]:
    """Returns a worker's environment: its place in the cluster, and its share of the cores."""
    cluster = {"cluster": {"worker": list(addresses)}, "task": {"type": "worker", "index": index}}
    own = {"TF_CONFIG": json.dumps(cluster), "PYTHONUNBUFFERED": "1"}
    return {**core_share, **os.environ, **own}


def core_share(local_workers: int, options: TrainOptions) -> dict[str, str]:
    """Returns the variables that give one of so many workers its share of this machine's cores.

    With `--deterministic` there are none: the number of threads decides how sums are rounded.
    """
    if options.engine.deterministic:
        return {}
    threads = str(max(1, num_cores() // local_workers))
    return dict.fromkeys(("TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS"), threads)


def run_worker(launcher: int) -> int:
    """Runs the command line in a worker, started by the process of this id; returns its code."""
    threading.Thread(target=end_with, args=[launcher], daemon=True).start()
    return main()


def end_with(launcher: int) -> None:
    """Waits for the end of the launcher, by whatever cause; then this process saves and ends."""
    while os.getppid() == launcher:
        time.sleep(LOOK_SECONDS)
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(SAVE_SECONDS)
    os.kill(os.getpid(), signal.SIGKILL)


class WorkerProcess:
    """One process of the cluster and its log file, which continues that of an earlier start."""

    def __init__(self, index: int, command: Sequence[str], environment: dict[str, str], log: Path):
        self.index, self.log = index, log
        with self.log.open("ab") as file:
            self._begin = self._read = file.tell()
            # In a session of its own, Ctrl-C reaches it only once, by `forward_signals`.
            self.process = subprocess.Popen(
                command,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def code(self) -> int | None:
        """The exit code, negative for a signal, or None while it runs."""
        return self.process.poll()

    def waiting_lines(self) -> list[str]:
        """Returns the new lines of its log about processes that it waits for."""
        content = self._log_from(self._read)
        self._read += content.rfind(b"\n") + 1
        whole = content[: content.rfind(b"\n") + 1].decode("utf-8", "replace")
        return [line for line in whole.splitlines() if line.startswith(WAITING)]

    def describe_end(self) -> str:
        """Returns how the process ended, with the path and the last lines of its log."""
        code = self.process.returncode
        how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"exited with {code}"
        lines = self._log_from(self._begin).decode("utf-8", "replace").splitlines()
        tail = "".join(f"\n    {line}" for line in lines[-LAST_LINES:])
        return f"worker {self.index} {how}; the end of {self.log}:{tail}"

    def _log_from(self, position: int) -> bytes:
        """Returns the log from a position on; nothing if somebody removed it meanwhile."""
        try:
            with self.log.open("rb") as log:
                log.seek(position)
                return log.read()
        except OSError:
            return b""

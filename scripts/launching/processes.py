"""The processes that `towers launch` starts: their command, their environment and their logs."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

from towers.ground.cores import num_cores
from towers.scripts.main import read_command

LAST_LINES = 5
WAITING = "waiting for "  # The beginning of a line about processes that are missing.
# The paths of this program, since `-m` would look for it in the working folder first.
WORKER_PROGRAM = (
    "import sys; sys.path[:] = {!r}; "
    "from towers.scripts.launching.worker import run; sys.exit(run({}))"
)


def make_log_dir(name: str) -> Path:
    """Returns the folder of the logs, and makes it if it is missing."""
    try:
        Path(name).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValueError(
            f"--log-dir takes a folder. Received {name!r}, which cannot be made: {error.strerror}."
        ) from error
    return Path(name)


def train_arguments(command_line: Sequence[str]) -> list[str]:
    """Returns `train` with its arguments, which may stand behind `--`.

    Raises:
        ValueError: it is another command, or its arguments are wrong.
    """
    arguments = list(command_line)
    arguments = arguments[1:] if arguments[:1] == ["--"] else arguments
    if arguments[:1] != ["train"]:
        raise ValueError(
            "towers launch starts `train`: write -- and then train with its arguments. Received "
            f"{' '.join(arguments) or 'nothing'}."
        )
    read_command(arguments)
    return arguments


def worker_command(arguments: Sequence[str]) -> list[str]:
    """Returns the command of every worker, of the arguments of `towers`."""
    paths = [os.path.abspath(entry) for entry in sys.path]
    return [sys.executable, "-c", WORKER_PROGRAM.format(paths, os.getpid()), *arguments]


def worker_environment(addresses: Sequence[str], index: int, local_workers: int) -> dict[str, str]:
    """Returns a worker's environment: its place in the cluster, and its share of the cores."""
    cluster = {"cluster": {"worker": list(addresses)}, "task": {"type": "worker", "index": index}}
    threads = str(max(1, num_cores() // local_workers))
    return {
        "TF_NUM_INTRAOP_THREADS": threads,
        "TF_NUM_INTEROP_THREADS": threads,
        **os.environ,
        "TF_CONFIG": json.dumps(cluster),
        "PYTHONUNBUFFERED": "1",
    }


class WorkerProcess:
    """One process and its log file.

    Args:
        index: its number in the cluster.
        command: its command line.
        environment: its whole environment.
        log_dir: the folder of `worker.INDEX.log`; it continues the log of an earlier start.
    """

    def __init__(
        self,
        index: int,
        command: Sequence[str],
        environment: dict[str, str],
        log_dir: Path,
    ):
        self.index = index
        self.log = log_dir / f"worker.{index}.log"
        with open_log(self.log) as log:
            self._begin = self._read = log.tell()
            # In a session of its own, Ctrl-C reaches it only once, by `forward_signals`.
            self.process = subprocess.Popen(
                command,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def code(self) -> int | None:
        """The exit code, negative for a signal, or None while it runs."""
        return self.process.poll()

    def waiting_lines(self) -> list[str]:
        """Returns the new lines of its log about processes that it waits for.

        There are none of a log that somebody removed meanwhile.
        """
        try:
            with self.log.open("rb") as log:
                log.seek(self._read)
                content = log.read()
        except OSError:
            return []
        whole = content[: content.rfind(b"\n") + 1]
        self._read += len(whole)
        lines = whole.decode("utf-8", "replace").splitlines()
        return [line for line in lines if line.startswith(WAITING)]

    def describe_end(self) -> str:
        """Returns how the process ended, with the path and the last lines of its log."""
        code = self.process.returncode
        how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"exited with {code}"
        try:
            content = self.log.read_bytes()[self._begin :]
        except OSError as error:
            content = f"not readable: {error.strerror}".encode()
        lines = content.decode("utf-8", "replace").splitlines()
        tail = "".join(f"\n    {line}" for line in lines[-LAST_LINES:])
        return f"worker {self.index} {how}; the end of {self.log}:{tail}"


def open_log(path: Path) -> BinaryIO:
    """Returns a log, opened to be continued at its end."""
    try:
        return path.open("ab")
    except OSError as error:
        raise ValueError(
            f"The log {path} cannot be written ({error.strerror}): remove it, or choose another "
            "--log-dir."
        ) from error

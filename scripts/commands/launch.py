"""`towers launch`: one process per GPU or share of the cores, each with its log, ended together."""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import Any, BinaryIO

POLL_SECONDS = 0.2
PATIENCE_SECONDS = 10.0  # A worker that waits for a dead one does not answer a signal.
LAST_LINES = 5
DEFAULT_PROCESSES = 2
STOPPED = (128 + signal.SIGINT, 128 + signal.SIGTERM)  # Codes of who was asked to save and end.
# The paths of this program, since `-m` would look for it in the working folder first.
WORKER_PROGRAM = (
    "import sys; sys.path[:] = {!r}; "
    "from towers.scripts.launching.worker import run; sys.exit(run({}))"
)
WRONG_INPUT = 2  # The exit code of a command that is to be written differently.


def run(options: argparse.Namespace) -> int:
    """Starts the workers, waits, and returns 0, or the code of the first that failed."""
    command = worker_command(options.command_line)
    addresses, indices = choose_addresses(options)
    log_dir = make_log_dir(options.log_dir)
    shares = gpu_shares(options.gpus, len(indices))
    print(f"starting {len(indices)} of {len(addresses)} processes, logs in {log_dir}", flush=True)
    workers: list[Worker] = []
    with forward_signals(workers) as forwarded:
        for index, share in zip(indices, shares, strict=True):
            if forwarded:
                return 128 + forwarded[0]
            environment = worker_environment(addresses, index, len(indices))
            workers.append(Worker(index, command + share, environment, log_dir))
        return watch(workers, forwarded)


def make_log_dir(name: str) -> Path:
    """Returns the folder of the logs, which is made if it is not there."""
    try:
        Path(name).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValueError(
            f"--log-dir takes a folder. Received {name!r}, which cannot be one: {error.strerror}."
        ) from error
    return Path(name)


def worker_command(arguments: Sequence[str]) -> list[str]:
    """Returns the command of every worker."""
    arguments = list(arguments[1:] if arguments[:1] == ["--"] else arguments)
    if arguments[:1] != ["train"]:
        raise ValueError(
            "towers launch starts `train`: write -- and then train with its arguments. Received "
            f"{' '.join(arguments) or 'nothing'}."
        )
    paths = [os.path.abspath(entry) for entry in sys.path]
    return [sys.executable, "-c", WORKER_PROGRAM.format(paths, os.getpid()), *arguments]


def choose_addresses(options: argparse.Namespace) -> tuple[list[str], list[int]]:
    """Returns the addresses of all processes, and the numbers of those to start here."""
    if options.cluster is None:
        if options.index is not None:
            raise ValueError("--index says which process of --cluster this is; give both.")
        count = options.processes or len(options.gpus or ()) or DEFAULT_PROCESSES
        return [f"127.0.0.1:{port}" for port in free_ports(count)], list(range(count))
    addresses = options.cluster
    if options.processes is not None:
        raise ValueError(
            "--cluster has one process for each address, of which this command starts that of "
            f"--index: leave out --processes. Received {options.processes}."
        )
    if not addresses:
        raise ValueError("--cluster takes host:port,host:port. Received no address.")
    if options.index is None or not 0 <= options.index < len(addresses):
        raise ValueError(
            f"--index must say which of the {len(addresses)} addresses of --cluster this machine "
            f"is, from 0 to {len(addresses) - 1}. Received {options.index}."
        )
    if len(set(addresses)) < len(addresses):
        raise ValueError(
            "--cluster takes one address for each process, all different. "
            f"Received {','.join(addresses)}."
        )
    ports = [port_of(address) for address in addresses]
    check_free(ports[options.index])
    return addresses, [options.index]


def port_of(address: str) -> int:
    """Returns the port of host:port."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit() or not 0 < int(port) < 2**16:
        raise ValueError(
            f"--cluster takes host:port,host:port with ports from 1 to 65535. Received {address!r}."
        )
    return int(port)


def check_free(port: int) -> None:
    """Raises ValueError if somebody listens on a port of this machine; two would share it."""
    with socket.socket() as one:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # An ended run's may linger.
        try:
            one.bind(("", port))
        except OSError as error:
            raise ValueError(
                f"Port {port} of this machine cannot be used ({error.strerror}): choose another "
                "in --cluster, the same on every machine."
            ) from error


def free_ports(count: int) -> list[int]:
    """Returns so many different ports of this machine that nobody listens on."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


def gpu_shares(gpus: Sequence[int] | None, num_workers: int) -> list[list[str]]:
    """Returns the arguments that give each worker its GPUs, in order, as evenly as they can be."""
    if gpus is None:
        return [[] for _ in range(num_workers)]
    if min(gpus) < 0 or len(set(gpus)) != len(gpus):
        raise ValueError(
            f"--gpus takes different numbers from 0 on. Received {','.join(map(str, gpus))}."
        )
    if len(gpus) % num_workers:
        raise ValueError(
            f"--gpus must name as many GPUs for every process. Received {len(gpus)} GPUs for "
            f"{num_workers} processes."
        )
    size = len(gpus) // num_workers
    shares = [gpus[start : start + size] for start in range(0, len(gpus), size)]
    return [["--gpus", ",".join(map(str, share))] for share in shares]


def worker_environment(addresses: Sequence[str], index: int, local_workers: int) -> dict[str, str]:
    """Returns a worker's environment: who is in the cluster, and its share of the cores."""
    cluster = {"cluster": {"worker": list(addresses)}, "task": {"type": "worker", "index": index}}
    threads = str(max(1, (os.cpu_count() or 1) // local_workers))
    return {
        "TF_NUM_INTRAOP_THREADS": threads,
        "TF_NUM_INTEROP_THREADS": threads,
        **os.environ,
        "TF_CONFIG": json.dumps(cluster),
        "PYTHONUNBUFFERED": "1",
    }


class Worker:
    """One process and its log file.

    Args:
        index: its number in the cluster.
        command: what it runs.
        environment: all of its environment.
        log_dir: where `worker.INDEX.log` goes; a log of an earlier start is continued.
    """

    def __init__(
        self, index: int, command: Sequence[str], environment: dict[str, str], log_dir: Path
    ):
        self.index = index
        self.log = log_dir / f"worker.{index}.log"
        with open_log(self.log) as log:
            self._begin = log.tell()
            # A session of its own: Ctrl-C reaches it through `forward_signals` alone, once.
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

    def describe_end(self) -> str:
        """Returns how the process ended, where its log is and how that ends."""
        code = self.process.returncode
        how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"exited with {code}"
        lines = self.log.read_bytes()[self._begin :].decode("utf-8", "replace").splitlines()
        tail = "".join(f"\n    {line}" for line in lines[-LAST_LINES:])
        return f"worker {self.index} {how}; the end of {self.log}:{tail}"


def open_log(path: Path) -> BinaryIO:
    """Returns a log, opened so that it goes on where it ends."""
    try:
        return path.open("ab")
    except OSError as error:
        raise ValueError(
            f"The log {path} cannot be written ({error.strerror}): remove it, or choose another "
            "--log-dir."
        ) from error


def watch(workers: Sequence[Worker], forwarded: Sequence[int] = ()) -> int:
    """Waits until every worker has ended well, or one has not: then it ends the others.

    Args:
        workers: all of them.
        forwarded: numbers of the signals that they were sent, which may grow; ending by these is
            ending well, and so is having saved because another machine was sent one: then all
            end at once.
    """
    deadline = math.inf
    while True:
        asked = [code for number in forwarded for code in (128 + number, -number)]
        asked += STOPPED if time.monotonic() < deadline else ()
        codes = [worker.code for worker in workers]
        failed = [
            worker
            for worker, code in zip(workers, codes, strict=True)
            if code not in (None, 0, *asked)
        ]
        if failed:
            return give_up(culprit(failed), workers)
        if None not in codes:
            print(f"all {len(workers)} workers {'stopped' if any(codes) else 'are done'}")
            return stopped_code(codes, forwarded)
        if any(codes) and not forwarded:
            deadline = min(deadline, time.monotonic() + PATIENCE_SECONDS)
        time.sleep(POLL_SECONDS)


def stopped_code(codes: Sequence[int | None], forwarded: Sequence[int]) -> int:
    """Returns 0, or 128 + the number of the first signal if a worker ended by one."""
    return 128 + forwarded[0] if any(codes) and forwarded else max(code or 0 for code in codes)


def culprit(failed: Sequence[Worker]) -> Worker:
    """Returns who probably failed first: being killed, or wrong input, follows from no other."""
    codes = [worker.process.returncode for worker in failed]
    return failed[codes.index(max(codes, key=lambda code: (code < 0, abs(code))))]


def give_up(failed: Worker, workers: Sequence[Worker]) -> int:
    """Says how a worker failed, ends the others, and returns its exit code."""
    print(f"towers: error: {failed.describe_end()}", file=sys.stderr, flush=True)
    end(workers)
    code = failed.process.returncode
    go_on = "" if code == WRONG_INPUT else "; the same command continues from the last checkpoint"
    print(f"all workers ended{go_on}")
    return code if code > 0 else 1


def end(workers: Sequence[Worker]) -> None:
    """Ends the workers that still run: asked first, then killed."""
    for worker in workers:
        if worker.code is None:
            worker.process.terminate()
    deadline = time.monotonic() + PATIENCE_SECONDS
    for worker in workers:
        try:
            worker.process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            worker.process.kill()
            worker.process.wait()


@contextlib.contextmanager
def forward_signals(workers: Sequence[Worker]) -> Iterator[list[int]]:
    """Within this scope Ctrl-C and SIGTERM go to every worker, which save and end.

    A second one kills them: a worker that still waits for the others does not hear the first.
    A terminal that is closed (SIGHUP) is a SIGTERM, but never the second, since it may come twice.
    Yields the list of the signals that were forwarded, which grows. At the end of the scope,
    however it comes, the workers are ended.
    """
    forwarded: list[int] = []

    def forward(number: int, frame: FrameType | None) -> None:
        is_second = bool(forwarded)
        if number == signal.SIGHUP and is_second:
            return
        if number == signal.SIGHUP:
            number = signal.SIGTERM
        forwarded.append(signal.SIGKILL if is_second else number)
        for worker in workers:
            if worker.code is None:
                worker.process.send_signal(forwarded[-1])
        if not is_second:
            with contextlib.suppress(OSError):  # The terminal may be gone.
                print("the workers finish their step and save; once more kills them", flush=True)

    numbers = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:  # As under nohup.
        numbers.append(signal.SIGHUP)
    before: dict[int, Any] = {number: signal.signal(number, forward) for number in numbers}
    try:
        yield forwarded
    finally:
        end(workers)
        for number, handler in before.items():
            signal.signal(number, handler)

"""Waits for the processes of `towers launch`, forwards signals to them, and ends them together."""

from __future__ import annotations

import contextlib
import math
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from types import FrameType

from towers.ground.interrupts import ending_signals, handling
from towers.ground.progress import count_of
from towers.scripts.launching.processes import WorkerProcess
from towers.scripts.shown import show
from towers.scripts.wrong_input import EXIT_CODE as WRONG_INPUT

POLL_SECONDS = 0.2
PATIENCE_SECONDS = 10.0  # A worker that waits for a dead one does not answer a signal.
STOPPED = (128 + signal.SIGINT, 128 + signal.SIGTERM)  # Exit codes after a request to stop.


def watch(workers: Sequence[WorkerProcess], forwarded: Sequence[int] = ()) -> int:
    """Waits for all workers and returns the exit code; if one fails, it ends the others.

    Args:
        workers: all of them.
        forwarded: numbers of the signals that they received, which may grow. A worker that ends
            by one of these has not failed, nor has one that saved because another machine
            received one: then all end within `PATIENCE_SECONDS`.
    """
    deadline = math.inf
    while True:
        asked = [code for number in forwarded for code in (128 + number, -number)]
        asked += STOPPED if time.monotonic() < deadline else ()
        codes = [worker.code for worker in workers]
        for worker in workers:
            for line in worker.waiting_lines():
                show(f"worker {worker.index}: {line}", flush=True)
        failed = [
            worker
            for worker, code in zip(workers, codes, strict=True)
            if code not in (None, 0, *asked)
        ]
        if failed:
            return give_up(failed, workers)
        if None not in codes:
            show(f"{count_of(len(workers), 'worker')} {'stopped' if any(codes) else 'done'}")
            by_signal = any(codes) and forwarded
            return 128 + forwarded[0] if by_signal else max(code or 0 for code in codes)
        if any(codes) and not forwarded:
            deadline = min(deadline, time.monotonic() + PATIENCE_SECONDS)
        time.sleep(POLL_SECONDS)


def give_up(failed: Sequence[WorkerProcess], workers: Sequence[WorkerProcess]) -> int:
    """Prints how a worker failed, ends all others, and returns its exit code.

    It is probably the first that failed: no other worker's failure kills one by a signal, or makes
    its input wrong.
    """
    codes = [worker.process.returncode for worker in failed]
    code, first = max(zip(codes, failed, strict=True), key=lambda one: (one[0] < 0, abs(one[0])))
    show(f"towers: error: {first.describe_end()}", file=sys.stderr, flush=True, colour="red")
    end(workers)
    remedy = "" if code == WRONG_INPUT else "; the same command continues from the last checkpoint"
    show(f"all workers ended{remedy}")
    return code if code > 0 else 1


def send(workers: Sequence[WorkerProcess], number: int) -> None:
    """Sends the running workers a signal."""
    for worker in workers:
        if worker.code is None:
            worker.process.send_signal(number)


def end(workers: Sequence[WorkerProcess]) -> None:
    """Ends the running workers by SIGTERM, and then by SIGKILL."""
    send(workers, signal.SIGTERM)
    deadline = time.monotonic() + PATIENCE_SECONDS
    for worker in workers:
        try:
            worker.process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            worker.process.kill()
            worker.process.wait()


@contextlib.contextmanager
def forward_signals(send: Callable[[int], object]) -> Iterator[list[int]]:
    """The scope in which Ctrl-C and SIGTERM go to the workers, which save and end.

    A second signal kills them: a worker that still waits for the others ignores the first.
    A closed terminal (SIGHUP) counts as SIGTERM, but never as the second, since it may come twice.
    Yields the growing list of the forwarded signals; `send` sends one to all workers.
    """
    forwarded: list[int] = []

    def forward(number: int, frame: FrameType | None) -> None:
        is_second = bool(forwarded)
        if number == signal.SIGHUP:
            if is_second:
                return
            number = signal.SIGTERM
        forwarded.append(signal.SIGKILL if is_second else number)
        send(forwarded[-1])
        if not is_second:
            with contextlib.suppress(OSError):  # The terminal may be gone.
                message = "the workers finish their step and save; a second signal kills them"
                show(message, flush=True)

    with handling(ending_signals(), forward):
        yield forwarded

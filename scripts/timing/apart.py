"""A process in which runs are built and timed, with settings of TensorFlow of its own."""

from __future__ import annotations

import contextlib
import functools
import multiprocessing
import os
import signal
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

from towers.ground.quiet import import_tensorflow_quietly

# Runs a number of steps; returns the seconds of all but the first, which may wait for its input.
TimedRun = Callable[[int], float]
ERRORS = (ValueError, OSError, ImportError)  # About what a user gives: told, not a bug.


class Apart(contextlib.AbstractContextManager["Apart"]):
    """A process that builds runs and makes the one that it is asked for; it ends with the context.

    `build` is a function of a module, and returns runs by name.
    """

    def __init__(self, build: Callable[..., dict[str, TimedRun]], *arguments: Any):
        context = multiprocessing.get_context("spawn")  # A fork would have this TensorFlow.
        self._connection, other = context.Pipe()
        self._process = context.Process(target=serve, args=(other,), daemon=True)
        self._process.start()
        other.close()
        self._connection.send((build, arguments))

    def __exit__(self, *_: object) -> None:
        self._connection.close()
        self._process.terminate()
        self._process.join()

    def runs(self) -> dict[str, TimedRun]:
        """Returns the runs, once they are built; errors are those of `build`."""
        names = self._answer()
        if isinstance(names, Exception):
            raise names
        return {name: functools.partial(self._run, name) for name in names}

    def _run(self, name: str, num_steps: int) -> float:
        self._connection.send((name, num_steps))
        seconds: float = self._answer()
        return seconds

    def _answer(self) -> Any:
        try:
            return self._connection.recv()
        except (EOFError, ConnectionError) as error:
            self._process.join()
            raise RuntimeError(
                f"A process of the benchmark ended, with exit code {self._process.exitcode}: what "
                "it wrote last says why, or it was killed."
            ) from error


def serve(connection: Connection) -> None:
    """Builds and makes runs as an `Apart` asks for them, until it is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # The keyboard interrupts the benchmark.
    import_tensorflow_quietly()
    with open(os.devnull, "w") as nowhere, contextlib.suppress(EOFError, ConnectionError):
        with contextlib.redirect_stdout(nowhere):  # The benchmark tells the same of its own part.
            build, arguments = connection.recv()
            runs = built(build, arguments)
        connection.send(runs if isinstance(runs, Exception) else list(runs))
        while True:
            name, num_steps = connection.recv()
            connection.send(runs[name](num_steps))


def built(build: Callable[..., dict[str, TimedRun]], arguments: Any) -> Any:
    """Returns the runs, or the error of what a user gave."""
    try:
        return build(*arguments)
    except ERRORS as error:
        return error

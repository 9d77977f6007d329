"""A process that answers requests, started without the main program and asked through a socket.

The pools of the standard library import the main program into each process. That takes seconds and
much memory if it imports TensorFlow, and fails if it has no `__main__` guard. Their processes also
outlive a killed program; this one ends when its socket is closed.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from multiprocessing.reduction import ForkingPickler
from typing import Any, TypeVar

PROGRAM = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from towers.ground.child_process import serve; serve(int(sys.argv[2]), *sys.argv[3:])"
)
Child = TypeVar("Child", bound="ChildProcess")
TOLD = (ValueError, OSError, ImportError)  # Errors about what a user gave; others are bugs.


class ChildProcess:
    """A process that answers requests in their order; it ends with the context.

    Args:
        make: a function of a module, called in the process without arguments; it returns
            `answer(request) -> reply`.
        what: the process does, to end "A process that ...".
    """

    def __init__(self, make: Callable[[], Callable[[Any], Any]], what: str):
        self._what = what
        self._connection, other = Pipe()
        path = json.dumps([os.path.abspath(entry) for entry in sys.path])
        arguments = (path, str(other.fileno()), make.__module__, make.__name__)
        # In a session of its own, so that an interrupt from the keyboard reaches this program only.
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-c", PROGRAM, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,  # Only ours: a library may print.
            pass_fds=[other.fileno()],
            start_new_session=True,
        )
        other.close()

    def __enter__(self: Child) -> Child:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()
        self._process.terminate()
        self._process.wait()

    def ask(self, request: Any) -> Any:
        """Returns the reply to a request; errors as in `receive`."""
        self.send(request)
        return self.receive()

    def send(self, request: Any) -> None:
        """Sends a request, without waiting for its reply."""
        with self._named_end():
            # An error of `send` holds a view of a `BytesIO`; Python warns when it collects both.
            self._connection.send_bytes(bytes(ForkingPickler.dumps(request)))

    def receive(self) -> Any:
        """Returns the reply to the oldest request that has none yet.

        Raises:
            ValueError, OSError, ImportError: as the process raised it.
            RuntimeError: the process has ended.
        """
        with self._named_end():
            reply, error = self._connection.recv()
        if error is not None:
            raise error
        return reply

    @contextlib.contextmanager
    def _named_end(self) -> Iterator[None]:
        try:
            yield
        except (EOFError, OSError) as error:
            raise RuntimeError(
                f"A process that {self._what} ended early (exit status {self._process.wait()}): "
                "what it wrote last says why, or memory ran out. Try fewer processes."
            ) from error


def serve(descriptor: int, module: str, name: str) -> None:
    """Replies to each request until the connection is closed."""
    answer = getattr(importlib.import_module(module), name)()
    with contextlib.suppress(EOFError, ConnectionError), Connection(descriptor) as connection:
        while True:
            request = connection.recv()
            try:
                reply: tuple[Any, Exception | None] = (answer(request), None)
            except TOLD as error:
                reply = (None, error)
            connection.send(reply)

"""Processes that tokenise: started without the main program, and asked through sockets.

The pools of the standard library import the main program into each process. That takes seconds and
much memory if it imports TensorFlow, and fails if it has no `__main__` guard. Their processes also
outlive a killed program; these end when their socket is closed.
"""

from __future__ import annotations

import collections
import concurrent.futures
import contextlib
import functools
import itertools
import json
import os
import queue
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Any

from towers.data.prepared.chunks import TokenisedChunk, tokenise_chunk
from towers.data.text import TextSettings, make_tokenizer
from towers.ground.cores import num_cores

_PROGRAM = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from towers.data.prepared.processes import serve; serve(*map(json.loads, sys.argv[2:]))"
)
_CHUNKS_AHEAD = 3  # For each process; it bounds the memory.


def tokenise(
    chunks: Iterable[Sequence[str]], settings: TextSettings, processes: int | None
) -> Iterator[TokenisedChunk]:
    """Yields the tokens of each chunk, in order, by so many processes; None is one for each core.

    With one process, and for a single chunk, this process does it alone.

    Raises:
        ValueError: the settings have no tokenizer.
        RuntimeError: a process ended early.
    """
    num_processes = processes or num_cores()
    chunks = iter(chunks)
    first = list(itertools.islice(chunks, 2))
    chunks = itertools.chain(first, chunks)
    if num_processes == 1 or len(first) < 2:
        tokenizer = make_tokenizer(settings)
        for texts in chunks:
            yield tokenise_chunk(texts, settings, tokenizer)
    else:
        yield from _tokenise_in_processes(chunks, settings, num_processes)


def _tokenise_in_processes(
    chunks: Iterator[Sequence[str]], settings: TextSettings, num_processes: int
) -> Iterator[TokenisedChunk]:
    idle: queue.SimpleQueue[TokeniserProcess] = queue.SimpleQueue()

    def ask_idle(texts: Sequence[str]) -> TokenisedChunk:
        process = idle.get()
        try:
            return process.tokenise(texts)
        finally:
            idle.put(process)

    with contextlib.ExitStack() as stack:
        for _ in range(num_processes):
            idle.put(stack.enter_context(TokeniserProcess(settings)))
        # One thread waits for each process; after an error, chunks that were not begun are dropped.
        threads = concurrent.futures.ThreadPoolExecutor(num_processes)
        stack.callback(threads.shutdown, cancel_futures=True)
        waiting: collections.deque[concurrent.futures.Future] = collections.deque()
        for texts in chunks:
            waiting.append(threads.submit(ask_idle, texts))
            if len(waiting) > _CHUNKS_AHEAD * num_processes:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


class TokeniserProcess(contextlib.AbstractContextManager["TokeniserProcess"]):
    """A process that tokenises; it ends with the context."""

    def __init__(self, settings: TextSettings):
        self._connection, other = Pipe()
        path = [os.path.abspath(entry) for entry in sys.path]
        arguments = map(json.dumps, (path, other.fileno(), settings.as_dict()))
        # In a session of its own, so that an interrupt from the keyboard reaches this program only.
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-c", _PROGRAM, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,  # Only ours: a library may print.
            pass_fds=[other.fileno()],
            start_new_session=True,
        )
        other.close()

    def __exit__(self, *_: object) -> None:
        self._connection.close()
        self._process.wait()

    def tokenise(self, texts: Sequence[str]) -> TokenisedChunk:
        """Returns the tokens of some texts; errors as in `tokenise`."""
        try:
            self._connection.send(texts)
            reply = self._connection.recv()
        except (EOFError, OSError) as error:
            raise RuntimeError(
                f"A process that tokenises ended early (exit status {self._process.wait()}), "
                "maybe because memory ran out. Try fewer processes."
            ) from error
        if isinstance(reply, Exception):
            raise reply
        return TokenisedChunk(*reply)


def serve(descriptor: int, values: dict[str, Any]) -> None:
    """Replies to each list of texts with its tokens or an error, until the connection is closed."""
    settings, make = TextSettings(**values), functools.cache(make_tokenizer)
    with contextlib.suppress(EOFError, ConnectionError), Connection(descriptor) as connection:
        while True:
            texts = connection.recv()
            try:
                reply: object = tuple(tokenise_chunk(texts, settings, make(settings)))
            except ValueError as error:
                reply = ValueError(str(error))
            connection.send(reply)

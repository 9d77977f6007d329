"""Processes that tokenise: started without the main program, and controlled by pipes.

The pools of the standard library import the main program into each process. That takes seconds and
much memory if it imports TensorFlow, and fails if it has no `__main__` guard. Their processes also
outlive a killed program; these end when their pipe is closed.
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
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from towers.data.corpus.tokenising import TokenisedChunk, tokenise_chunk, tokenise_here
from towers.data.text import TextSettings, make_tokenizer

_PROGRAM = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from towers.data.corpus.processes import serve; serve(json.loads(sys.argv[2]))"
)
_CHUNKS_AHEAD = 3  # For each process; it bounds the memory.
_ERRORS = {"ValueError": ValueError, "ImportError": ImportError}


def tokenise(
    chunks: Iterable[Sequence[str]], settings: TextSettings, num_processes: int
) -> Iterator[TokenisedChunk]:
    """Returns an iterator over the tokens of each chunk, in order.

    Args:
        chunks: lists of turns, read as needed.
        settings: how text is tokenised.
        num_processes: number of processes; 1 for this process alone, which also takes a single
            chunk.

    Raises:
        ValueError, ImportError: while iterating; the settings have no tokenizer.
        RuntimeError: while iterating; a process ended early.
    """
    chunks = iter(chunks)
    first = list(itertools.islice(chunks, 2))
    chunks = itertools.chain(first, chunks)
    if num_processes == 1 or len(first) < 2:
        return tokenise_here(chunks, settings)
    return _tokenise_in_processes(chunks, settings, num_processes)


def _tokenise_in_processes(
    chunks: Iterator[Sequence[str]], settings: TextSettings, num_processes: int
) -> Iterator[TokenisedChunk]:
    idle: queue.SimpleQueue[TokeniserProcess] = queue.SimpleQueue()
    with contextlib.ExitStack() as stack:
        for _ in range(num_processes):
            idle.put(stack.enter_context(TokeniserProcess(settings)))
        # One thread waits for each process; after an error, chunks that were not begun are dropped.
        threads = concurrent.futures.ThreadPoolExecutor(num_processes)
        stack.callback(threads.shutdown, cancel_futures=True)
        waiting: collections.deque[concurrent.futures.Future] = collections.deque()
        for chunk in chunks:
            waiting.append(threads.submit(_tokenise_by_idle, idle, chunk))
            if len(waiting) > _CHUNKS_AHEAD * num_processes:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


def _tokenise_by_idle(
    idle: queue.SimpleQueue[TokeniserProcess], turns: Sequence[str]
) -> TokenisedChunk:
    process = idle.get()
    try:
        return process.tokenise(turns)
    finally:
        idle.put(process)


class TokeniserProcess:
    """A process that tokenises; it ends with the context.

    Args:
        settings: how text is tokenised.
    """

    def __init__(self, settings: TextSettings):
        path = [os.path.abspath(entry) for entry in sys.path]
        arguments = [json.dumps(path), json.dumps(settings.as_dict())]
        # In a session of its own, so that an interrupt from the keyboard reaches this program only.
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-c", _PROGRAM, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )

    def __enter__(self) -> TokeniserProcess:
        return self

    def __exit__(self, *_: object) -> None:
        for pipe in (self._process.stdin, self._process.stdout):
            with contextlib.suppress(BrokenPipeError):
                pipe.close()  # type: ignore[union-attr]
        self._process.wait()

    def tokenise(self, turns: Sequence[str]) -> TokenisedChunk:
        """Returns the tokens of some turns; errors as in `tokenise`."""
        reply = self._ask(turns)
        if "error" in reply:
            raise _ERRORS[reply["error"]](reply["message"])
        return TokenisedChunk(**reply)

    def _ask(self, turns: Sequence[str]) -> dict[str, Any]:
        requests, replies = self._process.stdin, self._process.stdout
        line = b""
        with contextlib.suppress(BrokenPipeError):
            requests.write(json.dumps(turns).encode() + b"\n")  # type: ignore[union-attr]
            requests.flush()  # type: ignore[union-attr]
            line = replies.readline()  # type: ignore[union-attr]
        if not line.endswith(b"\n"):
            raise RuntimeError(
                f"A process that tokenises ended early (exit status {self._process.wait()}), "
                "maybe because memory ran out. Try fewer processes."
            )
        return json.loads(line)


def serve(settings: dict[str, Any]) -> None:
    """Writes one JSON reply for each line of the standard input, a JSON list of turns.

    Args:
        settings: the text settings as a dictionary.
    """
    replies = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    sys.stdout = sys.stderr  # A library that prints must not write into the replies.
    reply = _make_reply(TextSettings(**settings))
    with contextlib.suppress(BrokenPipeError):  # The program was killed; nothing reads replies.
        for line in sys.stdin.buffer:
            replies.write(json.dumps(reply(json.loads(line))).encode() + b"\n")
            replies.flush()


def _make_reply(settings: TextSettings) -> Callable[[Sequence[str]], dict[str, Any]]:
    """Returns the function from turns to the reply; its first call makes the tokenizer."""
    make = functools.cache(make_tokenizer)

    def reply(turns: Sequence[str]) -> dict[str, Any]:
        try:
            return tokenise_chunk(turns, settings, make(settings))._asdict()
        except (ValueError, ImportError) as error:
            name = "ImportError" if isinstance(error, ImportError) else "ValueError"
            return {"error": name, "message": str(error)}

    return reply

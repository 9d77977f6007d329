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

import numpy as np

from towers.data.preparing.tokenising import TokenisedChunk, tokenise_chunk, tokenise_here
from towers.data.text import TextSettings, make_tokenizer

_PROGRAM = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from towers.data.preparing.processes import serve; serve(json.loads(sys.argv[2]))"
)
_CHUNKS_AHEAD = 3  # For each process; it bounds the memory.
_ERRORS = {"ValueError": ValueError, "ImportError": ImportError}


def tokenise(
    chunks: Iterable[Sequence[str]], settings: TextSettings, num_processes: int
) -> Iterator[TokenisedChunk]:
    """Returns an iterator over the tokens of each chunk, in order.

    Args:
        chunks: lists of texts, read as needed.
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
    idle: queue.SimpleQueue[TokeniserProcess], texts: Sequence[str]
) -> TokenisedChunk:
    process = idle.get()
    try:
        return process.tokenise(texts)
    finally:
        idle.put(process)


def number_of_processes(given: int | None) -> int:
    """Returns the number of processes that tokenise; None is one for each core.

    Raises:
        ValueError: it is below 1.
    """
    processes = (os.cpu_count() or 1) if given is None else given
    if processes < 1:
        raise ValueError(f"processes must be at least 1. Received {processes}.")
    return processes


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

    def tokenise(self, texts: Sequence[str]) -> TokenisedChunk:
        """Returns the tokens of some texts; errors as in `tokenise`."""
        header, content = self._ask(texts)
        if "error" in header:
            raise _ERRORS[header["error"]](header["message"])
        return TokenisedChunk(header["table"], *_split(content, header["sizes"]))

    def _ask(self, texts: Sequence[str]) -> tuple[dict[str, Any], bytes]:
        requests, replies = self._process.stdin, self._process.stdout
        line = content = b""
        with contextlib.suppress(BrokenPipeError):
            requests.write(json.dumps(texts).encode() + b"\n")  # type: ignore[union-attr]
            requests.flush()  # type: ignore[union-attr]
            line = replies.readline()  # type: ignore[union-attr]
        if line.endswith(b"\n"):
            header = json.loads(line)
            num_bytes = 4 * sum(header.get("sizes", ()))
            content = replies.read(num_bytes)  # type: ignore[union-attr]
            if len(content) == num_bytes:
                return header, content
        raise RuntimeError(
            f"A process that tokenises ended early (exit status {self._process.wait()}), "
            "maybe because memory ran out. Try fewer processes."
        )


def _split(content: bytes, sizes: Sequence[int]) -> list[np.ndarray]:
    return np.split(np.frombuffer(content, np.uint32), np.cumsum(sizes)[:-1])


def serve(settings: dict[str, Any]) -> None:
    """Replies to each line of the standard input, a JSON list of texts.

    A reply is a line of JSON, with an error or with the table of tokens and the sizes of the
    arrays, which follow it.

    Args:
        settings: the text settings as a dictionary.
    """
    replies = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    sys.stdout = sys.stderr  # A library that prints must not write into the replies.
    reply = _make_reply(TextSettings(**settings))
    with contextlib.suppress(BrokenPipeError):  # The program was killed; nothing reads replies.
        for line in sys.stdin.buffer:
            header, arrays = reply(json.loads(line))
            replies.write(json.dumps(header).encode() + b"\n")
            for array in arrays:
                replies.write(array.data)
            replies.flush()


def _make_reply(
    settings: TextSettings,
) -> Callable[[Sequence[str]], tuple[dict[str, Any], Sequence[np.ndarray]]]:
    """Returns the function from texts to the reply; its first call makes the tokenizer."""
    make = functools.cache(make_tokenizer)

    def reply(texts: Sequence[str]) -> tuple[dict[str, Any], Sequence[np.ndarray]]:
        try:
            table, *arrays = tokenise_chunk(texts, settings, make(settings))
            return {"table": table, "sizes": [len(array) for array in arrays]}, arrays
        except (ValueError, ImportError) as error:
            name = "ImportError" if isinstance(error, ImportError) else "ValueError"
            return {"error": name, "message": str(error)}, ()

    return reply

"""Chunks of texts, tokenised by several processes."""

from __future__ import annotations

import collections
import concurrent.futures
import contextlib
import functools
import itertools
import queue
from collections.abc import Callable, Iterable, Iterator, Sequence

from towers.data.prepared.chunks import TokenisedChunk, tokenise_chunk
from towers.data.text import TextSettings, make_tokenizer
from towers.ground.child_process import ChildProcess
from towers.ground.cores import num_cores

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
    idle: queue.SimpleQueue[ChildProcess] = queue.SimpleQueue()

    def ask_idle(texts: Sequence[str]) -> TokenisedChunk:
        process = idle.get()
        try:
            return process.ask((settings, texts))
        finally:
            idle.put(process)

    with contextlib.ExitStack() as stack:
        for _ in range(num_processes):
            idle.put(stack.enter_context(ChildProcess(make_tokeniser, "tokenises")))
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


def make_tokeniser() -> Callable[[tuple[TextSettings, Sequence[str]]], TokenisedChunk]:
    """Returns `answer((settings, texts))`, the tokens of some texts."""
    make = functools.cache(make_tokenizer)

    def answer(request: tuple[TextSettings, Sequence[str]]) -> TokenisedChunk:
        settings, texts = request
        return tokenise_chunk(texts, settings, make(settings))

    return answer

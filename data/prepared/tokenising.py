"""Tokenising many turns at once over the cores; its workers import nothing but the text package."""

from __future__ import annotations

import collections
import concurrent.futures
import multiprocessing
from array import array
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from data.text import TextSettings, Tokenizer, make_tokenizer

CHUNK_SIZE = 2000  # Turns in a task: large enough that handing it over costs little.


class TokenisedChunk(NamedTuple):
    """The tokens of some turns, each token named by its place in a table.

    Attributes:
        table: the different tokens.
        places: uint32, the tokens of all turns one after the other, by their place in the table.
        lengths: uint32, how many tokens each turn has.
        characters: uint32, how many characters each turn has, blanks not counted.
    """

    table: list[str]
    places: array[int]
    lengths: array[int]
    characters: array[int]


def tokenise(
    turns: Iterable[str], settings: TextSettings, processes: int
) -> Iterator[TokenisedChunk]:
    """Yields the tokens of all turns, in order, chunk by chunk.

    Args:
        turns: the texts, read as they are needed.
        settings: how text is cut.
        processes: how many processes do it; 1 for this one alone.
    """
    chunks = in_chunks(turns)
    if processes == 1:
        tokenizer = make_tokenizer(settings)
        for chunk in chunks:
            yield tokenise_chunk(chunk, settings, tokenizer)
        return
    # Spawned, since a process that holds TensorFlow's threads cannot be forked safely.
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(
        processes, context, initializer=start_worker, initargs=(settings,)
    ) as pool:
        waiting: collections.deque[concurrent.futures.Future] = collections.deque()
        for chunk in chunks:
            waiting.append(pool.submit(work, chunk))
            if len(waiting) > 4 * processes:  # So many at a time bound the memory.
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


def in_chunks(turns: Iterable[str]) -> Iterator[list[str]]:
    """Yields lists of `CHUNK_SIZE` turns; the last may be shorter."""
    chunk: list[str] = []
    for turn in turns:
        chunk.append(turn)
        if len(chunk) == CHUNK_SIZE:
            yield chunk
            chunk = []
    if chunk:
        yield chunk


def tokenise_chunk(
    turns: Sequence[str], settings: TextSettings, tokenizer: Tokenizer
) -> TokenisedChunk:
    """Returns the tokens of some turns."""
    places, lengths, characters = array("I"), array("I"), array("I")
    numbers: dict[str, int] = {}
    for turn in turns:
        text = settings.normalise(turn)
        tokens = tokenizer.tokenize(text) if text else []
        places.extend([numbers.setdefault(token, len(numbers)) for token in tokens])
        lengths.append(len(tokens))
        characters.append(len(text) - text.count(" "))
    return TokenisedChunk(list(numbers), places, lengths, characters)


_worker: tuple[TextSettings, Tokenizer] | None = None  # In a worker process, after its start.


def start_worker(settings: TextSettings) -> None:
    """Makes the tokenizer of a worker process."""
    global _worker
    _worker = settings, make_tokenizer(settings)


def work(turns: Sequence[str]) -> TokenisedChunk:
    """Returns the tokens of some turns, in a worker process."""
    if _worker is None:
        raise RuntimeError("work() runs in a process that start_worker() has prepared.")
    return tokenise_chunk(turns, *_worker)

"""Preparing a corpus: every turn is tokenised once, in parallel, into a memory-mapped cache."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import tqdm

from data.dialogues import ReadingReport, read_dialogues
from data.prepared.cache import PreparedPairs, open_prepared, unfinished_cache
from data.prepared.corpus import Corpus
from data.prepared.preparation import (
    Dialogues,
    Preparation,
    digest_dialogues,
    digest_files,
    is_held_out,
)
from data.prepared.tokenising import in_chunks
from data.prepared.workers import tokenise
from data.prepared.writing import PROVISIONAL, write_corpus


def prepare_files(
    paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    preparation: Preparation,
    folder: str | os.PathLike[str],
    *,
    processes: int | None = None,
    write: Callable[[str], None] = print,
) -> PreparedPairs:
    """Returns the prepared corpus of some files or folders, from the cache if it is there.

    Memory does not grow with the text, but by some 20 bytes a turn. A preparation that is killed
    leaves nothing that looks like a cache, and two at once do not harm each other.

    Args:
        paths: files and folders, as `read_dialogues` takes them.
        preparation: how.
        folder: of all caches; each has its own folder in it, named by its key.
        processes: how many tokenise; by default one for each core.
        write: what is told that a cache is damaged, and what a newly prepared corpus holds.

    Raises:
        ValueError: an argument or a file is wrong, or a part has no pair.
    """
    paths = [paths] if isinstance(paths, str | os.PathLike) else list(paths)
    report = ReadingReport()
    dialogues = read_dialogues(
        paths, kind=preparation.kind, encoding=preparation.encoding, report=report
    )
    key = preparation.key(digest_files(paths, preparation.kind))
    parted = _parted(dialogues, preparation.held_out)
    return _prepare(parted, preparation, Path(folder) / key, processes, write, report.summary_lines)


def prepare_dialogues(
    train: Dialogues,
    held_out: Dialogues | None,
    preparation: Preparation,
    folder: str | os.PathLike[str],
    *,
    processes: int | None = 1,
    write: Callable[[str], None] = print,
) -> PreparedPairs:
    """Returns the prepared corpus of dialogues in memory.

    Args:
        train: dialogues, each a list of turns.
        held_out: those to hold out; None for the share of `train` that the preparation says.
        preparation, folder, processes, write: as in `prepare_files`.
    """
    parts = [[list(turns) for turns in part] for part in (train, held_out or ())]
    key = preparation.key(digest_dialogues(parts if held_out is not None else parts[:1]))
    parted = _parted(parts[0], preparation.held_out)
    if held_out is not None:
        parted = ((bool(part), turns) for part in (0, 1) for turns in parts[part])
    return _prepare(parted, preparation, Path(folder) / key, processes, write, list)


def _parted(dialogues: Dialogues, share: float) -> Iterable[tuple[bool, Sequence[str]]]:
    return ((is_held_out(number, share), turns) for number, turns in enumerate(dialogues))


def _prepare(
    dialogues: Iterable[tuple[bool, Sequence[str]]],
    preparation: Preparation,
    cache: Path,
    processes: int | None,
    write: Callable[[str], None],
    report: Callable[[], list[str]],
) -> PreparedPairs:
    processes = (os.cpu_count() or 1) if processes is None else processes
    if processes < 1:
        raise ValueError(f"processes must be at least 1. Received {processes}.")
    if cache.exists():
        try:
            return open_prepared(cache)
        except ValueError as error:
            write(f"warning: {error} It is prepared again.")
    with unfinished_cache(cache) as unfinished:
        corpus = _take_in(dialogues, preparation, unfinished / PROVISIONAL, processes)
        write_corpus(corpus, unfinished, preparation, cache.name, report())
    prepared = open_prepared(cache)
    for line in prepared.summary:
        write(line)
    return prepared


def _take_in(
    dialogues: Iterable[tuple[bool, Sequence[str]]],
    preparation: Preparation,
    path: Path,
    processes: int,
) -> Corpus:
    """Returns what is known of a corpus once its tokens' numbers are written to a file."""
    corpus = Corpus(pairing=preparation.pairing, context=preparation.context)
    chunks = in_chunks(corpus.take_in(dialogues))
    bar = tqdm.tqdm(desc="tokenising", unit=" turns", disable=not sys.stderr.isatty())
    with path.open("wb") as file, bar:
        for chunk in tokenise(chunks, preparation.text, processes):
            corpus.add(chunk).tofile(file)
            bar.update(len(chunk.lengths))
    return corpus

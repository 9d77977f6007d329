"""Preparing a corpus: every turn is tokenised once, in parallel, into a memory-mapped cache."""

from __future__ import annotations

import dataclasses
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import tqdm

from towers.data.corpus.cache import PreparedPairs, open_prepared, unfinished_cache
from towers.data.corpus.corpus import Corpus
from towers.data.corpus.preparation import (
    Dialogues,
    Preparation,
    digest_dialogues,
    digest_files,
    is_held_out,
)
from towers.data.corpus.tokenising import in_chunks
from towers.data.corpus.workers import tokenise
from towers.data.corpus.writing import PROVISIONAL, write_corpus
from towers.data.dialogues import ReadingReport, read_dialogues
from towers.data.text import SPECIALS, SUBWORD_FILE, train_subwords

Parted = Iterable[tuple[bool, Sequence[str]]]  # Dialogues, and whether each is held out.
_SUBWORD_TURNS = 200_000  # From which subwords are learned; twice as many at most.


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
    key = preparation.key(digest_files(paths, preparation.kind))

    def read(report: ReadingReport) -> Parted:
        dialogues = read_dialogues(
            paths, kind=preparation.kind, encoding=preparation.encoding, report=report
        )
        return _parted(dialogues, preparation.held_out)

    return _prepare(read, preparation, Path(folder) / key, processes, write)


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

    def read(report: ReadingReport) -> Parted:
        if held_out is None:
            return _parted(parts[0], preparation.held_out)
        return ((bool(part), turns) for part in (0, 1) for turns in parts[part])

    return _prepare(read, preparation, Path(folder) / key, processes, write)


def _parted(dialogues: Dialogues, share: float) -> Parted:
    return ((is_held_out(number, share), turns) for number, turns in enumerate(dialogues))


def _prepare(
    read: Callable[[ReadingReport], Parted],
    preparation: Preparation,
    cache: Path,
    processes: int | None,
    write: Callable[[str], None],
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
        if preparation.text.learns_subwords:
            preparation = _with_subwords(preparation, read(ReadingReport()), unfinished)
        report = ReadingReport()
        corpus = _take_in(read(report), preparation, unfinished / PROVISIONAL, processes)
        lines = report.summary_lines() if report.num_files else []
        write_corpus(corpus, unfinished, preparation, cache.name, lines)
    prepared = open_prepared(cache)
    for line in prepared.summary:
        write(line)
    return prepared


def _with_subwords(preparation: Preparation, dialogues: Parted, folder: Path) -> Preparation:
    """Returns the preparation with a subword model, learned from what is not held out."""
    settings = preparation.text
    turns = (turn for is_held_out, turns in dialogues if not is_held_out for turn in turns)
    texts = map(settings.normalise, _evenly_spaced(turns, _SUBWORD_TURNS))
    size = preparation.vocabulary_size - len(SPECIALS)
    model = folder / "text" / SUBWORD_FILE  # Where the codec would copy it to.
    train_subwords(filter(None, texts), size, model)
    return dataclasses.replace(
        preparation, text=dataclasses.replace(settings, subword_model=str(model))
    )


def _evenly_spaced(texts: Iterable[str], count: int) -> list[str]:
    """Returns every text or, of more than twice as many as `count`, every n-th."""
    kept: list[str] = []
    stride = 1
    for number, text in enumerate(texts):
        if number % stride == 0:
            kept.append(text)
            if len(kept) > 2 * count:
                kept = kept[::2]
                stride *= 2
    return kept


def _take_in(
    dialogues: Parted,
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

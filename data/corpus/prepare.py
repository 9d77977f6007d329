"""Preparing a corpus: every turn is tokenised once, in parallel, into a memory-mapped cache."""

from __future__ import annotations

import dataclasses
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import tqdm

from towers.data.corpus.cache import Corpus, open_corpus, unfinished_cache
from towers.data.corpus.digests import Dialogues, digest_dialogues, digest_files, is_held_out
from towers.data.corpus.index import CorpusIndex
from towers.data.corpus.processes import tokenise
from towers.data.corpus.settings import CorpusSettings
from towers.data.corpus.tokenising import in_chunks
from towers.data.corpus.writing import PROVISIONAL, write_corpus
from towers.data.dialogues import (
    ReadingReport,
    WeightedPath,
    mendings,
    read_dialogues,
    repeated,
    weighted_paths,
)
from towers.data.letters import Letters
from towers.data.text import SPECIALS, SUBWORD_FILE, train_subwords

SplitDialogues = Iterable[tuple[bool, Sequence[str]]]  # Whether each is held out, and its turns.
_SUBWORD_TURNS = 200_000  # Subwords are learned from at most twice as many turns.


def prepare_files(
    paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    settings: CorpusSettings,
    folder: str | os.PathLike[str],
    *,
    processes: int | None = None,
    write: Callable[[str], None] = print,
) -> Corpus:
    """Returns the corpus of some files or folders, from its cache if there is one.

    Memory grows by some 20 bytes a turn, not with the text. A killed process leaves nothing that
    looks like a cache, and two processes may prepare the same corpus at once.

    Args:
        paths: files and folders, as `read_dialogues` takes them. One with a weight (`a.conv:2`)
            is read so many times in an epoch; held-out dialogues count once.
        settings: how the corpus becomes pairs of ids.
        folder: of all caches; each has a folder of its own in it, named by its key.
        processes: number of processes that tokenise; by default one for each core.
        write: called with a warning about a damaged cache, and with the summary of a new one.

    Raises:
        ValueError: an argument or a file is wrong, or a part has no pair.
    """
    given = [paths] if isinstance(paths, str | os.PathLike) else list(paths)
    weighted = weighted_paths(given)
    is_weighted = any(one.weight != 1 for one in weighted)
    content = digest_files([one.path for one in weighted], settings.kind)
    if is_weighted:
        own = [(digest_files([one.path], settings.kind), one.weight) for one in weighted]
        content = f"{content} {own}"
    mends = mendings(fix_text=settings.fix_text, simplify=settings.simplify)

    def read(report: ReadingReport) -> SplitDialogues:
        def dialogues_of(paths: Sequence[Path]) -> Dialogues:
            return read_dialogues(
                paths,
                kind=settings.kind,
                encoding=settings.encoding,
                report=report,
                columns=settings.columns,
                mendings=mends,
            )

        if is_weighted:
            return _split_weighted(weighted, dialogues_of, settings.held_out)
        return _split(dialogues_of([one.path for one in weighted]), settings.held_out)

    key = settings.key(content)
    return _prepare(read, settings, Path(folder) / key, processes, write)


def prepare_dialogues(
    train: Dialogues,
    held_out: Dialogues | None,
    settings: CorpusSettings,
    folder: str | os.PathLike[str],
    *,
    processes: int | None = 1,
    write: Callable[[str], None] = print,
) -> Corpus:
    """Returns the corpus of dialogues in memory, from its cache if there is one.

    Args:
        train: dialogues, each a list of turns.
        held_out: held-out dialogues; None holds out the share of `train` that the settings name.
        settings, folder, processes, write: as in `prepare_files`.
    """
    parts = [[list(turns) for turns in part] for part in (train, held_out or ())]
    key = settings.key(digest_dialogues(parts if held_out is not None else parts[:1]))

    def read(report: ReadingReport) -> SplitDialogues:
        if held_out is None:
            return _split(parts[0], settings.held_out)
        return ((bool(part), turns) for part in (0, 1) for turns in parts[part])

    return _prepare(read, settings, Path(folder) / key, processes, write)


def _split(dialogues: Dialogues, share: float) -> SplitDialogues:
    return ((is_held_out(number, share), turns) for number, turns in enumerate(dialogues))


def _split_weighted(
    weighted: Sequence[WeightedPath],
    dialogues_of: Callable[[Sequence[Path]], Dialogues],
    share: float,
) -> SplitDialogues:
    every = ((turns, one.weight) for one in weighted for turns in dialogues_of([one.path]))
    return repeated(
        (is_held_out(number, share), list(turns), weight)
        for number, (turns, weight) in enumerate(every)
    )


def _prepare(
    read: Callable[[ReadingReport], SplitDialogues],
    settings: CorpusSettings,
    cache: Path,
    processes: int | None,
    write: Callable[[str], None],
) -> Corpus:
    processes = (os.cpu_count() or 1) if processes is None else processes
    if processes < 1:
        raise ValueError(f"processes must be at least 1. Received {processes}.")
    if cache.exists():
        try:
            return open_corpus(cache)
        except ValueError as error:
            write(f"warning: {error} It is prepared again.")
    with unfinished_cache(cache) as unfinished:
        if settings.text.learns_subwords:
            settings = _with_subwords(settings, read(ReadingReport()), unfinished)
        report = ReadingReport()
        letters = Letters()
        path = unfinished / PROVISIONAL
        index = _tokenise_all(read(report), settings, path, processes, letters)
        lines = report.summary_lines() if report.num_files else []
        misfit = letters.misfit(settings.text.language)
        lines += [misfit] if misfit else []
        write_corpus(index, unfinished, settings, cache.name, lines)
    corpus = open_corpus(cache)
    for line in corpus.summary:
        write(line)
    return corpus


def _with_subwords(
    settings: CorpusSettings, dialogues: SplitDialogues, folder: Path
) -> CorpusSettings:
    """Returns the settings with a subword model, learned from the training dialogues."""
    turns = (turn for is_held_out, turns in dialogues if not is_held_out for turn in turns)
    texts = map(settings.text.normalise, _evenly_spaced(turns, _SUBWORD_TURNS))
    size = settings.vocabulary_size - len(SPECIALS)
    model = folder / "text" / SUBWORD_FILE  # Where the codec would copy it to.
    train_subwords(filter(None, texts), size, model)
    text = dataclasses.replace(settings.text, subword_model=str(model))
    return dataclasses.replace(settings, text=text)


def _evenly_spaced(texts: Iterable[str], count: int) -> list[str]:
    """Returns every text or, of more than twice `count` texts, every n-th."""
    kept: list[str] = []
    stride = 1
    for number, text in enumerate(texts):
        if number % stride == 0:
            kept.append(text)
            if len(kept) > 2 * count:
                kept = kept[::2]
                stride *= 2
    return kept


def _tokenise_all(
    dialogues: SplitDialogues,
    settings: CorpusSettings,
    path: Path,
    processes: int,
    letters: Letters,
) -> CorpusIndex:
    """Returns the index of a corpus; the provisional ids of its tokens are written to a file.

    The letters of its first turns are counted.
    """
    index = CorpusIndex(pairing=settings.pairing, context=settings.context)
    chunks = in_chunks(letters.of(index.turns_of(dialogues)))
    bar = tqdm.tqdm(desc="tokenising", unit=" turns", disable=not sys.stderr.isatty())
    with path.open("wb") as file, bar:
        for chunk in tokenise(chunks, settings.text, processes):
            file.write(index.add(chunk).data)  # `tofile` does not say why it fails.
            bar.update(len(chunk.lengths))
    return index

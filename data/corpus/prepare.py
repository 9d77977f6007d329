"""Preparing dialogues: every turn is tokenised once; killed, it goes on where it was."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from towers.data.corpus.cache import Corpus, open_corpus
from towers.data.corpus.digests import (
    Dialogues,
    all_files,
    digest_dialogues,
    digest_files,
    split,
)
from towers.data.corpus.index import CorpusIndex, marked
from towers.data.corpus.settings import CorpusSettings
from towers.data.corpus.writing import write_corpus
from towers.data.dialogues import (
    ReadingReport,
    WeightedPath,
    files_once,
    mendings,
    read_dialogues,
    repeated,
    weighted_paths,
)
from towers.data.letters import Letters
from towers.data.preparing.caches import Write, open_or_prepare
from towers.data.preparing.chunks import add_tokens, in_chunks
from towers.data.preparing.processes import number_of_processes
from towers.data.preparing.progress import Progress
from towers.data.text import SPECIALS, SUBWORD_FILE, train_subwords
from towers.ground.durable import make_folder, publish

SplitDialogues = Iterable[tuple[bool, Sequence[str]]]  # Whether each is held out, and its turns.
Read = Callable[[ReadingReport, Callable[[int], None]], SplitDialogues]
_SUBWORD_TURNS = 200_000  # Subwords are learned from at most twice as many turns.


def prepare_files(
    paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    settings: CorpusSettings,
    folder: str | os.PathLike[str],
    *,
    processes: int | None = None,
    write: Write = print,
) -> Corpus:
    """Returns the corpus of some files or folders, from its cache if there is one.

    Memory grows with the number of different words only. What a killed process has prepared stays,
    and the same call goes on from there. Of two processes that prepare the same corpus, one waits
    for the other.

    Args:
        paths: files and folders, as `read_dialogues` takes them. One with a weight (`a.conv:2`)
            is read so many times in an epoch; held-out dialogues count once.
        settings: how the corpus becomes pairs of ids.
        folder: of all caches; each has a folder of its own in it, named by its key.
        processes: number of processes that tokenise; by default one for each core.
        write: receives warnings, lines about the progress, and the summary of a new cache.

    Raises:
        ValueError: an argument or a file is wrong, or a part has no pair.
        OSError: something cannot be written; what was prepared stays.
    """
    given = [paths] if isinstance(paths, str | os.PathLike) else list(paths)
    weighted = weighted_paths(given)
    is_weighted = any(one.weight != 1 for one in weighted)
    content = digest_files([one.path for one in weighted], settings.kind)
    if is_weighted:
        own = [(digest_files([one.path], settings.kind), one.weight) for one in weighted]
        content = f"{content} {own} each file once"
    num_bytes = sum(path.stat().st_size for one in weighted for path in all_files([one.path]))
    mends = mendings(fix_text=settings.fix_text, simplify=settings.simplify)

    def read(report: ReadingReport, progress: Callable[[int], None]) -> SplitDialogues:
        def dialogues_of(paths: Sequence[Path], without: Sequence[Path] = ()) -> Dialogues:
            return read_dialogues(
                paths,
                kind=settings.kind,
                encoding=settings.encoding,
                report=report,
                columns=settings.columns,
                mendings=mends,
                progress=progress,
                without=without,
            )

        if is_weighted:
            return _split_weighted(weighted, dialogues_of, settings.held_out)
        return split(dialogues_of([one.path for one in weighted]), settings.held_out)

    cache = Path(folder) / settings.key(content)
    return _prepare(read, settings, cache, num_bytes, number_of_processes(processes), write)


def prepare_dialogues(
    train: Dialogues,
    held_out: Dialogues | None,
    settings: CorpusSettings,
    folder: str | os.PathLike[str],
    *,
    processes: int | None = 1,
    write: Write = print,
) -> Corpus:
    """Returns the corpus of dialogues in memory, from its cache if there is one.

    Args:
        train: dialogues, each a list of turns.
        held_out: held-out dialogues; None holds out the share of `train` that the settings name.
        settings, folder, processes, write: as in `prepare_files`.
    """
    parts = [[list(turns) for turns in part] for part in (train, held_out or ())]
    key = settings.key(digest_dialogues(parts if held_out is not None else parts[:1]))

    def read(report: ReadingReport, progress: Callable[[int], None]) -> SplitDialogues:
        if held_out is None:
            return split(parts[0], settings.held_out)
        return ((bool(part), turns) for part in (0, 1) for turns in parts[part])

    cache = Path(folder) / key
    return _prepare(read, settings, cache, 0, number_of_processes(processes), write)


def _split_weighted(
    weighted: Sequence[WeightedPath],
    dialogues_of: Callable[[Sequence[Path], Sequence[Path]], Dialogues],
    share: float,
) -> SplitDialogues:
    """Splits the dialogues of paths with weights."""
    every = (
        (turns, one.weight)
        for one, without in files_once(weighted)
        for turns in dialogues_of([one.path], without)
    )
    return repeated(
        (is_held_out, list(turns), weight) for is_held_out, (turns, weight) in split(every, share)
    )


def _prepare(
    read: Read,
    settings: CorpusSettings,
    cache: Path,
    num_bytes: int,
    processes: int,
    write: Write,
) -> Corpus:
    def fill(folder: Path, work: Path) -> None:
        own = settings
        if settings.text.learns_subwords:
            own = _with_subwords(settings, read, folder, work, num_bytes, write)
        with CorpusIndex(work) as index, Progress("tokenising", num_bytes, write) as progress:
            if index.report is None:
                _tokenise(read, own, index, processes, progress, write)
            write_corpus(index, folder, own, cache.name)

    return open_or_prepare(cache, "corpus", open_corpus, fill, write)


def _tokenise(
    read: Read,
    settings: CorpusSettings,
    index: CorpusIndex,
    processes: int,
    progress: Progress,
    write: Write,
) -> None:
    """Fills the index, from wherever an earlier process left it."""
    if index.num_chunks:
        write(f"goes on after {index.num_turns:,} turns that an earlier process prepared")
    report, letters = ReadingReport(), Letters()
    chunks = letters.of(in_chunks(marked(read(report, progress.add))))
    add_tokens(chunks, index, settings.text, processes, progress)
    misfit = letters.misfit(settings.text.language)
    lines = report.summary_lines() if report.num_files else []
    index.finish([*lines, *([misfit] if misfit else [])])


def _with_subwords(
    settings: CorpusSettings, read: Read, folder: Path, work: Path, num_bytes: int, write: Write
) -> CorpusSettings:
    """Returns the settings with a subword model, learned once from the training dialogues."""
    model = folder / "text" / SUBWORD_FILE  # Where the codec would copy it to.
    if not model.exists():
        with Progress("learning the subwords", num_bytes, write) as progress:
            dialogues = read(ReadingReport(), progress.add)
            turns = (turn for is_held_out, turns in dialogues if not is_held_out for turn in turns)
            texts = map(settings.text.normalise, _evenly_spaced(turns, _SUBWORD_TURNS))
            size = settings.vocabulary_size - len(SPECIALS)
            train_subwords(filter(None, texts), size, work / SUBWORD_FILE)
        make_folder(model.parent)
        publish(work / SUBWORD_FILE, model)
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

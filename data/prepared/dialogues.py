"""Preparing dialogues: every turn is tokenised once; killed, it goes on where it was."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from towers.data.folders import files_below
from towers.data.prepared.caches import Write, open_or_prepare
from towers.data.prepared.chunks import in_chunks
from towers.data.prepared.corpus import CODEC
from towers.data.prepared.dialogue_corpus import DialogueCorpus
from towers.data.prepared.dialogue_index import DialogueIndex, marked
from towers.data.prepared.dialogue_writing import write_dialogues
from towers.data.prepared.digests import digest_files, digest_of, identities_of, unchanged
from towers.data.prepared.filling import describe_unmatched, fill
from towers.data.prepared.learning import evenly_spaced, learn_subwords
from towers.data.prepared.preparation import DialoguePreparation
from towers.data.reading.dialogues import file_parts, read_dialogues
from towers.data.reading.mending import mendings
from towers.data.reading.paired import answers_beside
from towers.data.reading.report import ReadingReport
from towers.data.reading.weights import WeightedPath, repeated, weighted_paths
from towers.data.text import SUBWORD_FILE, TextCodec
from towers.ground.progress import Progress

Dialogues = Iterable[Sequence[str]]
SplitDialogues = Iterable[tuple[bool, Sequence[str]]]  # Whether each is held out, and its turns.
Read = Callable[[ReadingReport, Callable[[int], None]], SplitDialogues]
SUBWORD_TURNS = 400_000  # From more turns, subwords are learnt from at least about half as many.
_READING = "-6"  # Of readers that understand the same files in another way; a run's key has none.
_FEW = 1000  # Dialogues that are in memory at a time.


def prepare_files(
    paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    settings: DialoguePreparation,
    folder: str | os.PathLike[str],
    *,
    processes: int | None = None,
    write: Write = print,
    codec: TextCodec | None = None,
    trained: str | None = None,
) -> DialogueCorpus:
    """Returns the corpus of some files or folders, from its cache if there is one.

    Memory grows with the number of different words only. What a killed process has prepared stays,
    and the same call goes on from there. If two processes prepare the same corpus, one waits for
    the other.

    Args:
        paths: files and folders, as `read_dialogues` takes them. One with a weight (`a.conv:2`)
            is read so many times in an epoch; held-out dialogues count once.
        settings: how the corpus becomes pairs of ids.
        folder: of all caches; each has a folder of its own in it, named by its key.
        processes: number of processes that tokenise; by default one for each core.
        write: receives warnings, lines about the progress, and the summary of a new cache.
        codec: of a trained model, which is to be evaluated with all of the files: they are held
            out, and nothing is learnt from them. None learns a vocabulary.
        trained: the key of what that model was trained with, which is prepared as it was then.

    Raises:
        ValueError: an argument or a file is wrong, or a part has no pair.
        OSError: something cannot be written; what was prepared stays.
    """
    labelled = labelled_files(weighted_paths(paths), settings.kind)
    identities = identities_of(file for _, file in labelled)
    mends = mendings(fix_text=settings.fix_text, simplify=settings.simplify)

    def read(report: ReadingReport, progress: Callable[[int], None]) -> SplitDialogues:
        dialogues = read_dialogues(
            paths,
            kind=settings.kind,
            encoding=settings.encoding,
            report=report,
            layout=settings.layout,
            mendings=mends,
            progress=progress,
        )
        dialogues = unchanged(dialogues, identities)
        if codec is not None:
            return ((True, turns) for turns in dialogues)
        return repeated(split(dialogues, settings.held_out))

    content = digest_files(labelled)
    codec = None if settings.key(content) == trained else codec
    if codec is not None:
        settings = dataclasses.replace(settings, text=codec.settings)
        content += digest_of(codec)
    cache = Path(folder) / f"{settings.key(content)}{_READING}"
    num_bytes = sum(file.stat().st_size for _, file in labelled)
    told = any(label.rpartition("|")[2].isidentifier() for label, _ in labelled)
    return _prepare(
        read, settings, cache, num_bytes, processes, write, keep_apart=not told, codec=codec
    )


def prepare_dialogues(
    train: Dialogues,
    held_out: Dialogues | None,
    settings: DialoguePreparation,
    folder: str | os.PathLike[str],
    *,
    processes: int | None = 1,
    write: Write = print,
) -> DialogueCorpus:
    """Returns the corpus of dialogues in memory, from its cache if there is one.

    Args:
        train: dialogues, each a list of turns.
        held_out: held-out dialogues; None holds out the fraction of `train` that the settings name.
        settings, folder, processes, write: as in `prepare_files`.
    """
    parts = [[list(turns) for turns in part] for part in (train, held_out or ())]
    content = json.dumps(parts if held_out is not None else parts[:1]).encode()
    key = settings.key(hashlib.blake2b(content, digest_size=16).hexdigest())

    def read(report: ReadingReport, progress: Callable[[int], None]) -> SplitDialogues:
        if held_out is None:
            return split(parts[0], settings.held_out)
        return ((bool(part), turns) for part in (0, 1) for turns in parts[part])

    cache = Path(folder) / key
    return _prepare(read, settings, cache, 0, processes, write, keep_apart=held_out is None)


def _prepare(
    read: Read,
    settings: DialoguePreparation,
    cache: Path,
    num_bytes: int,
    processes: int | None,
    write: Write,
    *,
    keep_apart: bool,
    codec: TextCodec | None = None,
) -> DialogueCorpus:
    def prepare(folder: Path, work: Path) -> None:
        own = settings
        if settings.text.learns_subwords:
            own = _with_subwords(settings, read, folder, num_bytes, write)
        with DialogueIndex(work) as index:
            if index.report is None:
                report = ReadingReport()
                with Progress("tokenising", num_bytes, write) as progress:
                    chunks = in_chunks(marked(read(report, progress.add)))
                    letters = fill(index, index.add, chunks, own.text, processes, progress, write)
                lines = [*report.lines(), *letters.describe(own.text.language, own.encoding)]
                unmatched = describe_unmatched(own.text)
                index.finish([*(lines if report.num_files else []), *unmatched])
            key = cache.name.removesuffix(_READING)
            write_dialogues(index, folder, own, key, keep_apart=keep_apart, codec=codec)

    return open_or_prepare(cache, DialogueCorpus, prepare, write)


def labelled_files(weighted: Iterable[WeightedPath], kind: str) -> list[tuple[str, Path]]:
    """Returns the files of some paths, each with what its digest cannot tell: a weight, a part, and
    the suffixes if the kind is to be recognised.
    """

    files_of = {one: list(_files_of(one.path)) for one in weighted}
    parts = file_parts({one.path: files for one, files in files_of.items()})

    def label(file: Path, weight: float) -> str:
        suffixes = "".join(file.suffixes[-2:]).lower() if kind == "auto" else ""
        part = parts[file]
        return f"{suffixes}|{weight}" + (f"|{part}" if part else "")

    return [(label(file, one.weight), file) for one, files in files_of.items() for file in files]


def _files_of(path: Path) -> Iterator[Path]:
    """Yields a file, with the one that belongs to it if there is one, or those below a folder."""
    if path.is_dir():
        yield from filter(Path.is_file, files_below(path))
        return
    names = ("lines", "conversations")
    partners = [path.with_name(path.name.replace(*pair)) for pair in (names, names[::-1])]
    partners += [answers] if (answers := answers_beside(path)) else []
    yield from dict.fromkeys([path, *sorted(filter(Path.is_file, partners))])


def split(dialogues: Dialogues, fraction: float) -> Iterator[tuple[bool, Sequence[str]]]:
    """Yields (whether it is held out, dialogue); a hash of its number decides, always the same.

    A dialogue of a part that a file's name tells is in it. Where one of the parts of a few
    dialogues would be empty, the last one goes there; of one dialogue, its last turns do.
    """
    waiting: list[tuple[bool, Sequence[str]]] = []
    parts: set[bool] = set()
    for number, dialogue in enumerate(dialogues):
        told = getattr(dialogue, "is_held_out", None)
        part = is_held_out(number, fraction) if told is None else told
        parts.add(part)
        waiting.append((part, dialogue))
        if len(parts) == 2 or number >= _FEW:
            yield from waiting
            waiting = []
    if len(waiting) > 1:
        part, last = waiting[-1]
        waiting[-1] = (not part, last)
    elif waiting:
        waiting = _cut(waiting[0][1], fraction)
    yield from waiting


def _cut(turns: Any, fraction: float) -> list[tuple[bool, Any]]:
    """Returns the parts of the only dialogue: at its end at least two turns are held out."""
    num_turns = 2 * max(1, round(len(turns) * fraction / 2))
    place = len(turns) // 2 * 2 - num_turns
    if place < 2:
        return [(False, turns)]
    kept = getattr(turns, "with_texts", list)
    return [(False, kept(turns[:place])), (True, kept(turns[place:]))]


def is_held_out(number: int, fraction: float) -> bool:
    """Returns whether the hash holds out the dialogue of this number."""
    digest = hashlib.blake2b(number.to_bytes(8, "little"), digest_size=8).digest()
    return int.from_bytes(digest, "little") < fraction * 2**64


def _with_subwords(
    settings: DialoguePreparation,
    read: Read,
    folder: Path,
    num_bytes: int,
    write: Write,
) -> DialoguePreparation:
    """Returns the settings with a subword model, learnt once from the training dialogues."""
    model = folder / CODEC / SUBWORD_FILE  # Where the codec would copy it to.
    if not model.exists():
        with Progress("learning the subwords", num_bytes, write) as progress:
            dialogues = read(ReadingReport(), progress.add)
            turns = (turn for is_held_out, turns in dialogues if not is_held_out for turn in turns)
            learn_subwords(evenly_spaced(turns, SUBWORD_TURNS), settings, model)
    text = dataclasses.replace(settings.text, subword_model=str(model))
    return dataclasses.replace(settings, text=text)

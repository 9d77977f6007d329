"""Preparing a text: learnt vocabulary, then ids, by all cores; killed, it goes on where it was."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path

from towers.data.corpus.digests import digest_file
from towers.data.letters import Letters
from towers.data.preparing.caches import Write, open_or_prepare
from towers.data.preparing.chunks import add_tokens, in_chunks
from towers.data.preparing.processes import number_of_processes
from towers.data.preparing.progress import Progress
from towers.data.text import TextCodec
from towers.data.text_corpus.encoding import Encoding
from towers.data.text_corpus.learning import learn_codec
from towers.data.text_corpus.passages import passages
from towers.data.text_corpus.reading import Reader
from towers.data.text_corpus.report import TextReport
from towers.data.text_corpus.settings import VERSION, TextCorpusSettings
from towers.data.text_corpus.text_corpus import (
    MANIFEST,
    PARTS,
    TEXT,
    TextCorpus,
    digests_of_text,
    ids_file,
)
from towers.data.text_corpus.text_files import (
    TextFile,
    describe_others,
    describe_parts,
    digest_texts,
    find_texts,
)
from towers.ground.durable import publish, write_file


def prepare_texts(
    paths: Sequence[str | os.PathLike[str]],
    settings: TextCorpusSettings,
    folder: str | os.PathLike[str],
    *,
    processes: int | None = None,
    write: Write = print,
) -> TextCorpus:
    """Returns the ids of some files or folders, from their cache if there is one.

    Memory does not grow with the text: ids go to disk, and the vocabulary is learnt from a sample
    of bounded size. What a killed process has written stays, and the same call goes on from
    there. Of two processes that prepare the same text, one waits for the other.

    Args:
        paths: files and folders, as `find_texts` takes them.
        settings: how the text becomes ids.
        folder: of all caches; each has a folder of its own in it, named by its key.
        processes: number of processes that tokenise; by default one for each core.
        write: receives lines about the progress, and the summary.

    Raises:
        ValueError: an argument or a file is wrong, or a part has no text.
        OSError: something cannot be written; what was written stays.
    """
    processes = number_of_processes(processes)
    files = find_texts(paths)
    key = settings.key(digest_texts(files))

    def fill(folder: Path, work: Path) -> None:
        _learn(files, settings, folder, work, processes, write)
        notes = [*describe_parts(files), *describe_others(paths)]
        _encode(files, settings, key, (folder, work), processes, write, notes)

    return open_or_prepare(Path(folder) / key, "text", TextCorpus, fill, write)


def _learn(
    files: Sequence[TextFile],
    settings: TextCorpusSettings,
    folder: Path,
    work: Path,
    processes: int,
    write: Write,
) -> None:
    """Writes the codec, unless an earlier process did."""
    if (folder / TEXT).exists():
        return
    with Progress("learning the vocabulary", _num_bytes(files), write) as progress:
        report = TextReport()
        reader = Reader(settings.encoding, settings.field, report, progress.add)
        texts = passages(files, reader, settings.held_out)
        learn_codec(texts, settings, work / TEXT, processes, report)
    publish(work / TEXT, folder / TEXT)


def _encode(
    files: Sequence[TextFile],
    settings: TextCorpusSettings,
    key: str,
    folders: tuple[Path, Path],
    processes: int,
    write: Write,
    notes: Sequence[str],
) -> None:
    """Writes the ids and the manifest, from wherever an earlier process left it."""
    folder, work = folders
    codec = TextCodec.load(folder / TEXT)
    report, letters = TextReport(), Letters()
    with (
        Encoding(folder, work, codec) as encoding,
        Progress("tokenising", _num_bytes(files), write) as progress,
    ):
        if encoding.num_chunks:
            write(f"goes on after {encoding.num_tokens:,} tokens that an earlier process prepared")
        reader = Reader(settings.encoding, settings.field, report, progress.add)
        chunks = in_chunks(passages(files, reader, settings.held_out))
        add_tokens(letters.of(chunks), encoding, codec.settings, processes, progress)
    misfit = None if report.suggests_other_encoding else letters.misfit(settings.text.language)
    lines = [*report.lines(), *notes, *([misfit] if misfit else [])]
    _finish(encoding, lines, settings, folder, key)


def _num_bytes(files: Sequence[TextFile]) -> int:
    return sum(file.path.stat().st_size for file in files)


def _finish(
    encoding: Encoding,
    report: Sequence[str],
    settings: TextCorpusSettings,
    folder: Path,
    key: str,
) -> None:
    """Writes the manifest; raises ValueError if there is nothing to train on or to evaluate."""
    totals = encoding.totals
    if not (totals.tokens["train"] and totals.tokens["valid"]):
        raise ValueError(
            "A text must give passages for the parts train and valid. Received "
            f"{totals.tokens['train']:,} and {totals.tokens['valid']:,} tokens; give more text, "
            f"files whose names say train and valid, or a larger share than "
            f"held_out={settings.held_out}. What was read: {'; '.join(report)}."
        )
    parts = ", ".join(f"{totals.tokens[part]:,} {part}" for part in PARTS)
    summary = [
        *report,
        f"tokens: {parts}; vocabulary of {len(encoding.codec.vocabulary):,}, "
        f"{encoding.unknown_share:.2%} of the tokens are unknown",
    ]
    manifest = {
        "version": VERSION,
        "key": key,
        "summary": summary,
        "characters": totals.characters,
        "tokens": totals.tokens,
        "dtype": encoding.dtype.name,
        "digests": {part: digest_file(ids_file(folder, part)) for part in PARTS},
        "text": digests_of_text(folder),
    }
    write_file(folder / MANIFEST, (json.dumps(manifest, indent=2) + "\n").encode())

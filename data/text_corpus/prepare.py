"""Preparing a text: learnt vocabulary, then ids, by all cores; killed, it goes on where it was."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from towers.data.corpus.digests import digest_file
from towers.data.letters import Letters
from towers.data.text import TextCodec
from towers.data.text.durable import make_folder, publish, write_file
from towers.data.text_corpus.encoding import Encoding
from towers.data.text_corpus.learning import learn_codec
from towers.data.text_corpus.passages import Chunk, in_chunks, passages
from towers.data.text_corpus.progress import Progress
from towers.data.text_corpus.reading import Reader
from towers.data.text_corpus.report import TextReport
from towers.data.text_corpus.settings import VERSION, TextCorpusSettings
from towers.data.text_corpus.text_corpus import MANIFEST, PARTS, TEXT, TextCorpus, ids_file
from towers.data.text_corpus.text_files import TextFile, digest_texts, find_texts

Write = Callable[[str], None]


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
    processes = (os.cpu_count() or 1) if processes is None else processes
    if processes < 1:
        raise ValueError(f"processes must be at least 1. Received {processes}.")
    files = find_texts(paths)
    key = settings.key(digest_texts(files))
    cache = Path(folder) / key
    make_folder(cache.parent)
    with _alone(cache, write):
        if cache.exists():
            try:
                return TextCorpus(cache)
            except ValueError as error:
                write(f"warning: {error} It is prepared again.")
                cache.rename(cache.with_name(f".{key}.damaged.{os.getpid()}"))
        unfinished = cache.with_name(f".{key}.unfinished")
        try:
            make_folder(unfinished)
            _prepare(files, settings, unfinished, key, processes, write)
            publish(unfinished, cache)
        except OSError as error:
            raise OSError(
                f"The text cannot be prepared in {cache.parent}: {error.strerror or error}. Make "
                "room there, or start in another working folder. What is prepared stays, and the "
                "same command goes on."
            ) from error
    corpus = TextCorpus(cache)
    for line in corpus.summary:
        write(line)
    return corpus


@contextlib.contextmanager
def _alone(cache: Path, write: Write) -> Iterator[None]:
    """Waits until no other process prepares this cache; a killed one does not count."""
    with cache.with_name(f".{cache.name}.lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            write("waiting for another process that prepares the same text")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _prepare(
    files: Sequence[TextFile],
    settings: TextCorpusSettings,
    folder: Path,
    key: str,
    processes: int,
    write: Write,
) -> None:
    """Fills the folder of a cache, from wherever an earlier process left it."""
    num_bytes = sum(file.path.stat().st_size for file in files)
    if not (folder / TEXT).exists():
        with Progress("learning the vocabulary", num_bytes, write) as progress:
            reader = Reader(settings.encoding, settings.field, TextReport(), progress.add)
            learning = folder / f"{TEXT}.learning"
            learn_codec(passages(files, reader, settings.held_out), settings, learning, processes)
        publish(learning, folder / TEXT)
    codec = TextCodec.load(folder / TEXT)
    report, letters = TextReport(), Letters()
    with Encoding(folder, codec) as encoding, Progress("tokenising", num_bytes, write) as progress:
        if encoding.num_chunks:
            write(f"goes on after {encoding.num_tokens:,} tokens that an earlier process prepared")
        reader = Reader(settings.encoding, settings.field, report, progress.add)
        chunks = in_chunks(passages(files, reader, settings.held_out))
        encoding.write((_counted(chunk, letters) for chunk in chunks), processes)
    misfit = letters.misfit(settings.text.language)
    lines = [*report.lines(), *([misfit] if misfit else [])]
    _finish(encoding, lines, settings, folder, key)


def _counted(chunk: Chunk, letters: Letters) -> Chunk:
    """Returns the chunk after its letters are counted."""
    for line in chunk.lines:
        letters.add(line)
    return chunk


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
    }
    write_file(folder / MANIFEST, (json.dumps(manifest, indent=2) + "\n").encode())
    encoding.remove_journal()

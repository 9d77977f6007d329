"""Preparing a text: learnt vocabulary, then ids, by all cores; killed, it goes on where it was."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from towers.data.prepared.caches import Write, open_or_prepare
from towers.data.prepared.chunks import Chunk, Spelling, TokenisedChunk, in_chunks
from towers.data.prepared.corpus import (
    CODEC,
    STORED,
    TextCorpus,
    array_file,
    dtype_of_ids,
    write_manifest,
)
from towers.data.prepared.digests import (
    digest_file,
    digest_files,
    digest_of,
    identities_of,
    unchanged,
)
from towers.data.prepared.filling import describe_unmatched, fill
from towers.data.prepared.journal import JournalledFiles
from towers.data.prepared.learning import learn_codec
from towers.data.prepared.passages import ENDS, GOES_ON, passages, passages_of_parts
from towers.data.prepared.preparation import TextPreparation
from towers.data.reading.report import MOST_TOLD, TextReport
from towers.data.reading.text_files import (
    TextFile,
    describe_others,
    describe_parts,
    find_texts,
)
from towers.data.reading.texts import Reader
from towers.data.text import LineCodec, TextCodec, TextSettings
from towers.ground.durable import publish
from towers.ground.progress import Progress
from towers.ground.special_ids import SEPARATOR

_READING = "-3"  # Of readers that understand the same files in another way; a run's key has none.
# Yields the passages of all parts; called with the report and the progress of reading them.
Read = Callable[[TextReport, Callable[[int], None]], Iterator[Chunk]]


def prepare_texts(
    paths: Sequence[str | os.PathLike[str]],
    settings: TextPreparation,
    folder: str | os.PathLike[str],
    *,
    processes: int | None = None,
    write: Write = print,
    codec: LineCodec | None = None,
    trained: str | None = None,
    part: str = "test",
) -> TextCorpus:
    """Returns the ids of some files or folders, from their cache if there is one.

    Memory does not grow with the text: ids go to disk, and the vocabulary is learnt from a sample
    of bounded size. What a killed process has written stays, and the same call goes on from
    there. If two processes prepare the same text, one waits for the other.

    Args:
        paths: files and folders, as `find_texts` takes them.
        settings: how the text becomes ids.
        folder: of all caches; each has a folder of its own in it, named by its key.
        processes: number of processes that tokenise; by default one for each core.
        write: receives lines about the progress, and the summary.
        codec: of a trained model, which is to be evaluated. None learns one.
        trained: the key of what that model was trained with, which is prepared as it was then.
        part: what the model is evaluated with: the files whose names tell it, or else all of them.

    Raises:
        ValueError: an argument or a file is wrong, or a part has no text.
        OSError: something cannot be written; what was written stays.
    """
    files = find_texts(paths, code=settings.code)
    identities = identities_of(file.path for file in files)
    content = content_of(files)
    codec = None if settings.key(content) == trained else codec
    named = files
    if codec is not None:
        named = [file for file in files if file.part == part] or files
        files = [file._replace(part=part) for file in named]
        settings = dataclasses.replace(settings, text=codec.settings)
        content = content_of(files) + digest_of(codec)
    num_bytes = sum(file.path.stat().st_size for file in files)

    def notes() -> list[str]:
        others = describe_others(paths, code=settings.code)
        return [*describe_parts(named), *describe_twins(named), *others]

    def read(report: TextReport, progress: Callable[[int], None]) -> Iterator[Chunk]:
        text = settings.text
        kept = (text.as_written, text.documents, text.chosen_tokenizer == "spaces")
        reader = Reader(settings.encoding, settings.field, report, progress, *kept)
        return unchanged(passages(files, reader, settings.held_out), identities)

    cache = Path(folder) / f"{settings.key(content)}{_READING}"
    return _prepare(read, settings, cache, num_bytes, processes, write, notes, codec)


def content_of(files: Sequence[TextFile]) -> str:
    """Returns a digest of the content of files, their kinds and their parts."""
    return digest_files((f"{file.kind}|{STORED.get(file.part or '')}", file.path) for file in files)


def describe_twins(files: Sequence[TextFile]) -> list[str]:
    """Returns a line about files with the same content, if there are any."""
    sizes = [file.path.stat().st_size for file in files]
    num_of_size = Counter(sizes)
    alike: dict[str, list[str]] = {}
    for file, size in zip(files, sizes, strict=True):
        if size and num_of_size[size] > 1:
            alike.setdefault(digest_file(file.path), []).append(str(file.path))
    found = [f"{names[0]} and {other}" for names in alike.values() for other in names[1:]]
    more = ", ..." if len(found) > MOST_TOLD else ""
    return [f"with the same content: {', '.join(found[:MOST_TOLD])}{more}"] if found else []


def prepare_words(
    texts: Mapping[str, str],
    vocabulary_size: int,
    folder: str | os.PathLike[str],
    *,
    write: Write = print,
) -> TextCorpus:
    """Returns the ids of a text as it is written, from their cache if there is one.

    Tokens are separated by white space, every line has its end, and a word that is not among the
    most frequent ones of the training part is unknown, as in the Penn Treebank.

    Args:
        texts: {part: its lines}.
        vocabulary_size: number of words, with those for the end of a line and for the unknown.
        folder, write: as in `prepare_texts`.

    Raises:
        ValueError: the size is too small, or a part has no text.
        OSError: something cannot be written; what was written stays.
    """
    text = TextSettings("en", tokenizer="spaces", as_written=True)
    settings = TextPreparation(text, vocabulary_size, code=False)
    stored = [(STORED[part], text) for part, text in texts.items()]
    content = hashlib.blake2b(json.dumps(stored).encode(), digest_size=16)
    cache = Path(folder) / settings.key(content.hexdigest())
    return _prepare(lambda *_: passages_of_parts(texts), settings, cache, 0, 1, write)


def _prepare(
    read: Read,
    settings: TextPreparation,
    cache: Path,
    num_bytes: int,
    processes: int | None,
    write: Write,
    notes: Callable[[], list[str]] = list,
    given: LineCodec | None = None,
) -> TextCorpus:
    def prepare(folder: Path, work: Path) -> None:
        if given is not None:
            given.save(folder / CODEC)
        elif not (folder / CODEC).exists():  # An earlier process may have learnt it.
            report = TextReport()
            with Progress("learning the vocabulary", num_bytes, write) as progress:
                texts = read(report, progress.add)
                if not learn_codec(texts, settings, work / CODEC, processes):
                    raise ValueError(
                        "A text must have lines to train on. Received none; give other files. What "
                        f"was read: {'; '.join(report.lines())}."
                    )
            publish(work / CODEC, folder / CODEC)
        report = TextReport()
        codec = TextCodec.load(folder / CODEC)
        with (
            TextIds(folder, work, codec) as ids,
            Progress("tokenising", num_bytes, write) as progress,
        ):
            chunks = in_chunks(read(report, progress.add))
            letters = fill(ids, ids.add, chunks, codec.settings, processes, progress, write)
            is_any = report.suggests_other_encoding or codec.settings.as_written
            lines = [
                *(report.lines() if report.num_files else []),
                *notes(),
                *letters.describe(None if is_any else codec.settings.language, settings.encoding),
                *ids.describe_changes(report.num_lines),
                *describe_unmatched(settings.text),
            ]
            key = cache.name.removesuffix(_READING)
            _finish(ids, lines, settings, folder, key, learns=given is None)

    return open_or_prepare(cache, TextCorpus, prepare, write)


def _finish(
    ids: TextIds,
    report: Sequence[str],
    settings: TextPreparation,
    folder: Path,
    key: str,
    *,
    learns: bool,
) -> None:
    """Writes the manifest; raises ValueError if there is nothing to train on or to evaluate."""
    num_tokens = ids.num_tokens
    needed = list(num_tokens.values())[:2]
    if not learns and not any(num_tokens.values()):
        raise ValueError(
            "A text must have lines to evaluate. Received none; give other files. What was read: "
            f"{'; '.join(report)}."
        )
    if learns and not all(needed):
        raise ValueError(
            "A text must give passages for the parts train and validation. Received "
            f"{' and '.join(f'{number:,}' for number in needed)} tokens; give more text, "
            f"files whose names say train and validation, or a larger fraction than "
            f"held_out={settings.held_out}. What was read: {'; '.join(report)}."
        )
    parts = ", ".join(f"{num_tokens[stored]:,} {part}" for part, stored in STORED.items())
    summary = [
        *report,
        f"tokens: {parts}; vocabulary of {len(ids.codec.vocabulary):,}, "
        f"{ids.unknown_fraction:.2%} of the tokens are unknown",
    ]
    facts = {"characters": ids.num_characters, "parts": [p for p in num_tokens if num_tokens[p]]}
    write_manifest(folder, key, summary, {part: [ids.dtype.name] for part in num_tokens}, facts)


class TextIds(JournalledFiles):
    """The files of ids of an unfinished corpus; what an earlier process journalled is kept.

    Attributes:
        dtype: of the ids.
        num_tokens: of each part, by the name of its file.
        num_characters: of each part, without blanks, and with one for each line.
    """

    def __init__(self, folder: Path, work: Path, codec: TextCodec):
        paths = {part: array_file(folder, part) for part in STORED.values()}
        zeros = dict.fromkeys(paths, 0)
        numbers = {"chunks": 0, "tokens": zeros, "characters": {**zeros}, "unknown": 0}
        super().__init__(work, paths, numbers)
        self.codec = codec
        self.dtype = dtype_of_ids(len(codec.vocabulary))
        self.num_tokens: dict[str, int] = self.state["tokens"]
        self.num_characters: dict[str, int] = self.state["characters"]

    @property
    def unknown_fraction(self) -> float:
        """The fraction of unknown tokens."""
        return self.state["unknown"] / max(1, sum(self.num_tokens.values()))

    def describe_changes(self, num_lines: int) -> list[str]:
        """Returns a line if the normalisation changed some of so many lines."""
        changed = self.state.get("changed", 0) if num_lines else 0
        return [
            f"normalised: {changed:,} lines have other quotes, dashes, blanks or capitals now "
            "(--set normalise=none changes nothing)"
        ][: bool(changed)]

    def add(self, chunk: TokenisedChunk, marks: np.ndarray) -> None:
        """Writes the ids of the next lines, whose marks are those of `passages`."""
        vocabulary = self.codec.vocabulary
        spelling = Spelling(list(map(self.codec.token_ids, chunk.table)))
        is_end, goes_on = (marks & ENDS) > 0, (marks & GOES_ON) > 0
        marks = marks % ENDS
        ends = np.where(is_end, SEPARATOR, vocabulary.end)
        end_all = self.codec.settings.as_written | is_end
        ids, lengths = spelling.ids(
            chunk.indices, chunk.lengths, ends, end_all=end_all, end_none=goes_on
        )
        self.state["changed"] = self.state.get("changed", 0) + chunk.num_changed
        part_of_ids = np.repeat(marks, lengths)
        characters = chunk.characters + ((lengths > 0) & ~goes_on)
        self.state["unknown"] += int(np.count_nonzero(ids == vocabulary.unknown))
        for number, part in enumerate(STORED.values()):
            own = ids[part_of_ids == number]
            self.append(part, own.astype(self.dtype).data)
            self.num_tokens[part] += len(own)
            self.num_characters[part] += int(characters[marks == number].sum())

"""Preparing a corpus: every turn is tokenised once, in parallel, into a memory-mapped cache."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import shutil
import sys
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
import tqdm

from data.dialogues import ReadingReport, pair_turns, read_dialogues, unpaired_turns
from data.prepared.cache import VERSION, PreparedPairs, open_prepared, put_in_place, write_cache
from data.prepared.tokenising import TokenisedChunk, tokenise
from data.prepared.vocabulary_ids import VocabularyIds
from data.text import END, SEPARATOR, UNKNOWN, TextCodec, TextSettings

BLOCK = 1 << 17  # Turns whose ids are in memory at a time.
Dialogues = Iterable[Sequence[str]]


@dataclasses.dataclass(frozen=True)
class Preparation:
    """How a corpus becomes pairs of ids.

    Args:
        text: how text is cut.
        vocabulary_size: how many tokens get an id at most.
        pairing: `alternate` or `sliding`.
        context: how many earlier turns belong to a question.
        held_out: share of the dialogues that is kept for the evaluation.
        kind: of the files, or `auto`.
        encoding: of the files.
    """

    text: TextSettings
    vocabulary_size: int = 20000
    pairing: str = "alternate"
    context: int = 0
    held_out: float = 0.02
    kind: str = "auto"
    encoding: str = "utf-8"

    def __post_init__(self) -> None:
        if not 0 < self.held_out < 1:
            raise ValueError(f"held_out must be between 0 and 1. Received {self.held_out}.")
        if self.vocabulary_size < 10:
            raise ValueError(
                f"vocabulary_size must be at least 10. Received {self.vocabulary_size}."
            )
        pair_turns(0, pairing=self.pairing, context=self.context)  # Checks both.

    def key(self, content: str) -> str:
        """Returns the digest of these settings, the files they name and a content's digest."""
        settings = dataclasses.asdict(self)
        for name in ("dictionary", "user_dictionary", "subword_model"):
            path = settings["text"][name]
            if path is not None:
                settings["text"][name] = digest_files([Path(path)])
        text = json.dumps([VERSION, settings, content], sort_keys=True)
        return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def prepare_files(
    paths: Sequence[str | os.PathLike[str]],
    preparation: Preparation,
    folder: str | os.PathLike[str],
    *,
    processes: int | None = None,
    write: Callable[[str], None] = print,
) -> PreparedPairs:
    """Returns the prepared corpus of some files or folders, from the cache if it is there.

    Args:
        paths: files and folders, as `read_dialogues` takes them.
        preparation: how.
        folder: of all caches; each has its own folder in it.
        processes: how many tokenise; by default one for each core.
        write: what is told that a corpus is prepared, and what was found in it.
    """
    report = ReadingReport()
    dialogues = read_dialogues(
        paths, kind=preparation.kind, encoding=preparation.encoding, report=report
    )
    content = digest_files(every_file(map(Path, paths)))
    share = preparation.held_out
    return _prepare(
        ((is_held_out(number, share), turns) for number, turns in enumerate(dialogues)),
        preparation,
        Path(folder),
        preparation.key(content),
        processes,
        write,
        report,
    )


def prepare_dialogues(
    train: Dialogues,
    held_out: Dialogues,
    preparation: Preparation,
    folder: str | os.PathLike[str],
    *,
    processes: int | None = 1,
    write: Callable[[str], None] = print,
) -> PreparedPairs:
    """Returns the prepared corpus of dialogues in memory; arguments as in `prepare_files`."""
    parts = [list(map(list, train)), list(map(list, held_out))]
    text = json.dumps(parts).encode()
    content = hashlib.blake2b(text, digest_size=16).hexdigest()
    dialogues = ((bool(part), turns) for part in (0, 1) for turns in parts[part])
    key = preparation.key(content)
    return _prepare(dialogues, preparation, Path(folder), key, processes, write, None)


def _prepare(
    dialogues: Iterable[tuple[bool, Sequence[str]]],
    preparation: Preparation,
    folder: Path,
    key: str,
    processes: int | None,
    write: Callable[[str], None],
    report: ReadingReport | None,
) -> PreparedPairs:
    cache = folder / key
    if cache.exists():
        try:
            return open_prepared(cache)
        except ValueError as error:
            write(f"warning: {error} It is prepared again.")
            shutil.rmtree(cache)
    unfinished = folder / f".{key}.{os.getpid()}.tmp"
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(parents=True)
    try:
        corpus = _Corpus(preparation)
        with (unfinished / "provisional").open("wb") as file:
            processes = processes or os.cpu_count() or 1
            turns = corpus.take_in(dialogues)
            for chunk in tokenise(turns, preparation.text, processes):
                corpus.add(chunk).tofile(file)
        _write(corpus, unfinished, preparation, key, report)
        put_in_place(unfinished, cache)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    prepared = open_prepared(cache)
    for line in prepared.summary:
        write(line)
    return prepared


class _Corpus:
    """What is known of a corpus while its turns pass by; the tokens themselves are on disk."""

    def __init__(self, preparation: Preparation):
        self._preparation = preparation
        self._numbers: dict[str, int] = {}
        self._counts = np.zeros(1 << 16, np.int64)
        self.num_turns = 0
        self.lengths, self.characters = array("I"), array("I")
        self.held_out = array("B")
        self.pairs = array("i")  # First turn of the question, turn of the answer, and so on.
        self.unpaired = 0

    def take_in(self, dialogues: Iterable[tuple[bool, Sequence[str]]]) -> Iterator[str]:
        """Yields every turn, and notes to which pairs and to which part it belongs."""
        pairing, context = self._preparation.pairing, self._preparation.context
        bar = tqdm.tqdm(desc="tokenising", unit=" turns", disable=not sys.stderr.isatty())
        with bar:
            for is_held_out, turns in dialogues:
                for first, answer in pair_turns(len(turns), pairing=pairing, context=context):
                    self.pairs.append(self.num_turns + first)
                    self.pairs.append(self.num_turns + answer)
                self.unpaired += unpaired_turns(len(turns), pairing=pairing)
                self.held_out.extend([is_held_out] * len(turns))
                self.num_turns += len(turns)
                bar.update(len(turns))
                yield from turns

    def add(self, chunk: TokenisedChunk) -> np.ndarray:
        """Returns the chunk's tokens as uint32 numbers of the whole corpus, and counts them."""
        numbers = self._numbers
        mapped = [numbers.setdefault(token, len(numbers)) for token in chunk.table]
        ids = np.array(mapped, np.uint32)[np.frombuffer(chunk.places, np.uint32)]
        lengths = np.frombuffer(chunk.lengths, np.uint32)
        start = len(self.lengths)
        parts = np.frombuffer(self.held_out, np.uint8, len(lengths), start).copy()
        learned = ids[np.repeat(parts == 0, lengths)]
        counts = np.bincount(learned, minlength=len(numbers))
        if len(counts) > len(self._counts):
            self._counts = np.pad(self._counts, (0, len(counts)))
        self._counts[: len(counts)] += counts
        self.lengths.extend(chunk.lengths)
        self.characters.extend(chunk.characters)
        return ids

    def tokens(self) -> list[str]:
        """Returns every token, in the order of their numbers."""
        return list(self._numbers)

    def counts(self) -> dict[str, int]:
        """Returns how often each token occurs in the training part."""
        return {
            token: int(count)
            for token, count in zip(self._numbers, self._counts, strict=False)
            if count
        }


def _write(
    corpus: _Corpus,
    folder: Path,
    preparation: Preparation,
    key: str,
    report: ReadingReport | None,
) -> None:
    """Writes the cache of a corpus whose provisional ids are in the folder."""
    ids = VocabularyIds(corpus.tokens(), corpus.counts(), preparation.vocabulary_size)
    lengths = np.frombuffer(corpus.lengths, np.uint32).astype(np.int64)
    provisional_offsets = np.concatenate([[0], np.cumsum(lengths)])
    source = np.memmap(folder / "provisional", np.uint32, "r") if lengths.any() else lengths[:0]
    final_lengths = np.concatenate(
        [ids.final_lengths(source, provisional_offsets, block) for block in blocks(len(lengths))]
        or [lengths]
    )
    offsets = np.concatenate([[0], np.cumsum(final_lengths)])
    held_out = np.frombuffer(corpus.held_out, np.uint8).astype(bool)
    pairs, num_empty = usable_pairs(corpus.pairs, final_lengths)
    parts = {part: pairs[held_out[pairs[:, 1]] == part] for part in (False, True)}
    check_parts(parts, preparation, report)

    dtype = np.uint16 if len(ids.vocabulary) <= 1 << 16 else np.uint32
    tokens = np.lib.format.open_memmap(folder / "tokens.npy", "w+", dtype, (int(offsets[-1]),))
    times = np.bincount(parts[False][:, 1], minlength=len(lengths))
    unigrams = np.zeros(len(ids.vocabulary), np.int64)
    unknown = total = 0
    for block in blocks(len(lengths)):
        part = ids.final_ids(source, provisional_offsets, block, SEPARATOR)
        tokens[offsets[block.start] : offsets[block.stop]] = part
        of_turn = np.repeat(np.arange(block.start, block.stop), final_lengths[block])
        spoken = part != SEPARATOR
        unigrams += np.bincount(
            part[spoken], weights=times[of_turn[spoken]], minlength=len(unigrams)
        ).astype(np.int64)
        kept = spoken & held_out[of_turn]
        unknown, total = unknown + int(np.sum(part[kept] == UNKNOWN)), total + int(kept.sum())
    unigrams[END] = len(parts[False])
    tokens.flush()
    del tokens, source
    (folder / "provisional").unlink()
    unknown_rate = unknown / max(1, total)
    arrays = {
        "offsets": offsets,
        "characters": np.frombuffer(corpus.characters, np.uint32),
        "train_pairs": parts[False],
        "held_out_pairs": parts[True],
        "unigram_counts": unigrams,
    }
    summary = [
        *([] if report is None else report.summary_lines()),
        f"{len(parts[False])} pairs to train on, {len(parts[True])} held out; left out: "
        f"{num_empty} with an empty turn, {corpus.unpaired} turns without a partner",
        f"{int(offsets[-1]) - int(np.count_nonzero(final_lengths))} tokens, vocabulary of "
        f"{len(ids.vocabulary)}, {unknown_rate:.2%} of the held-out tokens are unknown",
    ]
    manifest = {"key": key, "summary": summary, "unknown_rate": unknown_rate}
    write_cache(folder, arrays, TextCodec(preparation.text, ids.vocabulary), manifest)


def usable_pairs(flat: Sequence[int], lengths: np.ndarray) -> tuple[np.ndarray, int]:
    """Returns the pairs, int32 [n, 2], whose question and answer have tokens, and how many not."""
    pairs = np.array(flat, np.int32).reshape(-1, 2)
    usable = (lengths[pairs[:, 1]] > 0) & (lengths[pairs[:, 1] - 1] > 0)
    return pairs[usable], int(np.sum(~usable))


def check_parts(
    parts: dict[bool, np.ndarray], preparation: Preparation, report: ReadingReport | None
) -> None:
    """Raises ValueError unless there are pairs to train on and pairs to evaluate with."""
    num_train, num_held_out = len(parts[False]), len(parts[True])
    if not (num_train and num_held_out):
        found = "" if report is None else f" What was read: {'; '.join(report.summary_lines())}."
        raise ValueError(
            "A corpus must give at least one pair to train on and one to hold out. Received "
            f"{num_train} and {num_held_out}; give more dialogues, or another share than "
            f"held_out={preparation.held_out}.{found}"
        )


def blocks(num_turns: int) -> list[slice]:
    """Returns slices of `BLOCK` turns that cover all."""
    return [slice(start, min(start + BLOCK, num_turns)) for start in range(0, num_turns, BLOCK)]


def is_held_out(number: int, share: float) -> bool:
    """Returns whether the dialogue of this number is held out: a draw that never changes."""
    digest = hashlib.blake2b(number.to_bytes(8, "little"), digest_size=8).digest()
    return int.from_bytes(digest, "little") < share * 2**64


def every_file(paths: Iterable[Path]) -> list[Path]:
    """Returns the files, and those in the folders, in the order of their names."""
    files: list[Path] = []
    for path in paths:
        inside = sorted(one for one in path.rglob("*") if one.is_file()) if path.is_dir() else []
        files += inside or [path]
    return files


def digest_files(paths: Sequence[Path]) -> str:
    """Returns a digest of the files' contents."""
    digest = hashlib.blake2b(digest_size=16)
    for path in paths:
        try:
            with path.open("rb") as file:
                while block := file.read(1 << 20):
                    digest.update(block)
        except FileNotFoundError as error:
            raise ValueError(f"There is no file {path}.") from error
        digest.update(b"\0end\0")
    return digest.hexdigest()

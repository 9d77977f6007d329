"""From the index and the provisional ids of a corpus to the files of its cache, in blocks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

import numpy as np

from towers.data.corpus.cache import write_cache
from towers.data.corpus.index import CorpusIndex
from towers.data.corpus.renumbering import Renumbering
from towers.data.corpus.settings import CorpusSettings
from towers.data.text import END, SEPARATOR, UNKNOWN, TextCodec

PROVISIONAL = "provisional"  # The temporary file of the provisional ids, uint32.
_BLOCK_TOKENS = 1 << 20


def write_corpus(
    index: CorpusIndex, folder: Path, settings: CorpusSettings, key: str, report: Sequence[str]
) -> None:
    """Writes the cache of a corpus into the folder of its provisional ids.

    Args:
        index: of the whole corpus.
        folder: of the cache; the provisional ids in it are deleted.
        settings: how the corpus becomes pairs of ids.
        key: of the cache.
        report: lines about the files that were read.

    Raises:
        ValueError: a part has no pair.
    """
    renumbering = Renumbering(index.tokens(), index.counts(settings.min_dialogues), settings)
    vocabulary = renumbering.vocabulary
    num_ids = len(vocabulary) + len(renumbering.unknown_words)
    starts = _offsets(index.lengths)
    path = folder / PROVISIONAL
    provisional = np.memmap(path, np.uint32, "r") if starts[-1] else np.zeros(0, int)
    lengths = np.zeros(len(starts) - 1, np.int64)
    for block in _blocks(starts):
        lengths[block] = renumbering.lengths(provisional, starts, block)
    parts, num_empty = _usable_parts(index, lengths)
    _check_parts(parts, settings, report)

    offsets = _offsets(lengths)
    dtype = np.uint16 if num_ids <= 1 << 16 else np.uint32
    counts = _Counts(len(vocabulary), parts["train_pairs"], index.held_out)
    with (folder / "tokens.npy").open("wb") as file:  # Mapped, a full disk would be a SIGBUS.
        _write_header(file, dtype, int(offsets[-1]))
        for block in _blocks(starts):
            ids = renumbering.ids(provisional, starts, block, SEPARATOR)
            file.write(ids.astype(dtype).data)
            counts.add(ids, np.repeat(np.arange(block.start, block.stop), lengths[block]))
    del provisional
    path.unlink()
    arrays = {
        "offsets": offsets,
        "characters": index.characters,
        "unigram_counts": counts.unigrams,
        **parts,
    }
    summary = [
        *report,
        f"{len(parts['train_pairs']):,} pairs to train on, {len(parts['held_out_pairs']):,} held "
        f"out; left out: {num_empty:,} pairs with an empty turn, {index.num_unpaired:,} turns "
        "without a partner",
        f"{int(offsets[-1]) - np.count_nonzero(lengths):,} tokens, vocabulary of "
        f"{len(vocabulary):,}, {counts.unknown_rate:.2%} of the held-out tokens are unknown",
    ]
    manifest = {"key": key, "summary": summary, "unknown_rate": counts.unknown_rate}
    codec = TextCodec(settings.text, vocabulary)
    write_cache(folder, arrays, codec, renumbering.unknown_words, manifest)


def _write_header(file: BinaryIO, dtype: type[np.generic], size: int) -> None:
    """Writes the beginning of an .npy file of one dimension."""
    descr = np.lib.format.dtype_to_descr(np.dtype(dtype))
    header = {"descr": descr, "fortran_order": False, "shape": (size,)}
    np.lib.format.write_array_header_1_0(file, header)


def _offsets(lengths: np.ndarray) -> np.ndarray:
    return np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])


def _blocks(offsets: np.ndarray) -> Iterator[slice]:
    """Yields slices that cover all turns, of at most `_BLOCK_TOKENS` tokens or one turn."""
    start, num_turns = 0, len(offsets) - 1
    while start < num_turns:
        stop = int(np.searchsorted(offsets, offsets[start] + _BLOCK_TOKENS, "right")) - 1
        yield slice(start, max(start + 1, stop))
        start = max(start + 1, stop)


def _usable_parts(index: CorpusIndex, lengths: np.ndarray) -> tuple[dict[str, np.ndarray], int]:
    """Returns the pairs of both parts without empty turns, and the number of dropped pairs."""
    pairs, held_out = index.pairs, index.held_out
    answers = pairs[:, 1]
    usable = (lengths[answers] > 0) & (lengths[answers - 1] > 0)
    parts = {
        "train_pairs": pairs[usable & ~held_out[answers]],
        "held_out_pairs": pairs[usable & held_out[answers]],
    }
    return parts, int(np.sum(~usable))


def _check_parts(
    parts: dict[str, np.ndarray], settings: CorpusSettings, report: Sequence[str]
) -> None:
    num_train, num_held_out = len(parts["train_pairs"]), len(parts["held_out_pairs"])
    if not (num_train and num_held_out):
        found = f" What was read: {'; '.join(report)}." if report else ""
        raise ValueError(
            "A corpus must give at least one pair to train on and one to hold out. Received "
            f"{num_train} and {num_held_out}; give more dialogues, or another share than "
            f"held_out={settings.held_out}.{found}"
        )


class _Counts:
    """Counts the ids of the training answers, and the unknown ids of the held-out turns.

    Args:
        vocabulary_size: number of ids.
        train_pairs: int32 [n, 2]; a turn counts once for each pair whose answer it is.
        held_out: whether each turn is held out.
    """

    def __init__(self, vocabulary_size: int, train_pairs: np.ndarray, held_out: np.ndarray):
        self.unigrams = np.zeros(vocabulary_size, np.int64)
        self.unigrams[END] = len(train_pairs)
        self._times = np.bincount(train_pairs[:, 1], minlength=len(held_out))
        self._held_out = held_out
        self._num_unknown = self._num_held_out = 0

    def add(self, ids: np.ndarray, turns: np.ndarray) -> None:
        """Counts ids, given the turn of each."""
        is_text = ids != SEPARATOR
        ids, turns = ids[is_text], turns[is_text]
        ids = np.where(ids < len(self.unigrams), ids, UNKNOWN)
        counts = np.bincount(ids, weights=self._times[turns], minlength=len(self.unigrams))
        self.unigrams += counts.astype(np.int64)
        held_out = ids[self._held_out[turns]]
        self._num_held_out += len(held_out)
        self._num_unknown += int(np.sum(held_out == UNKNOWN))

    @property
    def unknown_rate(self) -> float:
        """The share of unknown ids in the held-out turns."""
        return self._num_unknown / max(1, self._num_held_out)

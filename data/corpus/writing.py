"""From a corpus with provisional numbers to the files of its cache, block by block."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from towers.data.corpus.cache import write_cache
from towers.data.corpus.corpus import Corpus
from towers.data.corpus.preparation import Preparation
from towers.data.corpus.vocabulary_ids import VocabularyIds
from towers.data.text import END, SEPARATOR, UNKNOWN, TextCodec

PROVISIONAL = "provisional"  # The file of the provisional numbers, uint32, which is not kept.
_BLOCK_TOKENS = 1 << 20


def write_corpus(
    corpus: Corpus, folder: Path, preparation: Preparation, key: str, report: Sequence[str]
) -> None:
    """Writes the cache of a corpus into the folder where its provisional numbers are.

    Args:
        corpus: all of it, taken in.
        folder: where to; the provisional numbers are deleted.
        preparation: how.
        key: of the cache.
        report: lines on what was read.

    Raises:
        ValueError: a part has no pair.
    """
    ids = VocabularyIds(corpus.tokens(), corpus.counts(), preparation.vocabulary_size)
    starts = _offsets(corpus.lengths)
    source = np.memmap(folder / PROVISIONAL, np.uint32, "r") if starts[-1] else np.zeros(0, int)
    lengths = np.zeros(len(starts) - 1, np.int64)
    for block in _blocks(starts):
        lengths[block] = ids.final_lengths(source, starts, block)
    parts, num_empty = _usable_parts(corpus, lengths)
    _check_parts(parts, preparation, report)

    offsets = _offsets(lengths)
    dtype = np.uint16 if len(ids.vocabulary) <= 1 << 16 else np.uint32
    tokens = np.lib.format.open_memmap(folder / "tokens.npy", "w+", dtype, (int(offsets[-1]),))
    counts = _Counts(len(ids.vocabulary), parts["train_pairs"], corpus.held_out)
    for block in _blocks(starts):
        final = ids.final_ids(source, starts, block, SEPARATOR)
        tokens[offsets[block.start] : offsets[block.stop]] = final
        counts.add(final, np.repeat(np.arange(block.start, block.stop), lengths[block]))
    tokens.flush()
    del tokens, source
    (folder / PROVISIONAL).unlink()
    arrays = {
        "offsets": offsets,
        "characters": corpus.characters,
        "unigram_counts": counts.unigrams,
        **parts,
    }
    summary = [
        *report,
        f"{len(parts['train_pairs']):,} pairs to train on, {len(parts['held_out_pairs']):,} held "
        f"out; left out: {num_empty:,} pairs with an empty turn, {corpus.num_unpaired:,} turns "
        "without a partner",
        f"{int(offsets[-1]) - np.count_nonzero(lengths):,} tokens, vocabulary of "
        f"{len(ids.vocabulary):,}, {counts.unknown_rate:.2%} of the held-out tokens are unknown",
    ]
    manifest = {"key": key, "summary": summary, "unknown_rate": counts.unknown_rate}
    write_cache(folder, arrays, TextCodec(preparation.text, ids.vocabulary), manifest)


def _offsets(lengths: np.ndarray) -> np.ndarray:
    return np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])


def _blocks(offsets: np.ndarray) -> Iterator[slice]:
    """Yields slices that cover all turns, of at most `_BLOCK_TOKENS` tokens if they can be."""
    start, num_turns = 0, len(offsets) - 1
    while start < num_turns:
        stop = int(np.searchsorted(offsets, offsets[start] + _BLOCK_TOKENS, "right")) - 1
        yield slice(start, max(start + 1, stop))
        start = max(start + 1, stop)


def _usable_parts(corpus: Corpus, lengths: np.ndarray) -> tuple[dict[str, np.ndarray], int]:
    """Returns the pairs of both parts whose question and answer have tokens, and how many not."""
    pairs, held_out = corpus.pairs, corpus.held_out
    answers = pairs[:, 1]
    usable = (lengths[answers] > 0) & (lengths[answers - 1] > 0)
    parts = {
        "train_pairs": pairs[usable & ~held_out[answers]],
        "held_out_pairs": pairs[usable & held_out[answers]],
    }
    return parts, int(np.sum(~usable))


def _check_parts(
    parts: dict[str, np.ndarray], preparation: Preparation, report: Sequence[str]
) -> None:
    num_train, num_held_out = len(parts["train_pairs"]), len(parts["held_out_pairs"])
    if not (num_train and num_held_out):
        found = f" What was read: {'; '.join(report)}." if report else ""
        raise ValueError(
            "A corpus must give at least one pair to train on and one to hold out. Received "
            f"{num_train} and {num_held_out}; give more dialogues, or another share than "
            f"held_out={preparation.held_out}.{found}"
        )


class _Counts:
    """Counts of final ids: those of the training answers, and the unknown ones of held-out turns.

    Args:
        vocabulary_size: how many ids there are.
        train_pairs: int32 [n, 2]; a turn counts as often as it is an answer.
        held_out: whether each turn is held out.
    """

    def __init__(self, vocabulary_size: int, train_pairs: np.ndarray, held_out: np.ndarray):
        self.unigrams = np.zeros(vocabulary_size, np.int64)
        self.unigrams[END] = len(train_pairs)
        self._times = np.bincount(train_pairs[:, 1], minlength=len(held_out))
        self._held_out = held_out
        self._num_unknown = self._num_held_out = 0

    def add(self, ids: np.ndarray, turns: np.ndarray) -> None:
        """Counts ids and the turn that each belongs to."""
        is_text = ids != SEPARATOR
        ids, turns = ids[is_text], turns[is_text]
        counts = np.bincount(ids, weights=self._times[turns], minlength=len(self.unigrams))
        self.unigrams += counts.astype(np.int64)
        held_out = ids[self._held_out[turns]]
        self._num_held_out += len(held_out)
        self._num_unknown += int(np.sum(held_out == UNKNOWN))

    @property
    def unknown_rate(self) -> float:
        """The share of unknown ids in the held-out turns."""
        return self._num_unknown / max(1, self._num_held_out)

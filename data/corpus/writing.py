"""From the index of a corpus to the files of its cache, one block of turns after another."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import numpy as np

from towers.data.corpus.array_file import ArrayFile
from towers.data.corpus.cache import PARTS, write_cache
from towers.data.corpus.index import BEGINS, HELD_OUT, CorpusIndex
from towers.data.corpus.pairs import PairFinder
from towers.data.corpus.renumbering import Renumbering
from towers.data.corpus.settings import CorpusSettings
from towers.data.text import TextCodec
from towers.ground.special_ids import END, SEPARATOR, UNKNOWN

_BLOCK_TURNS, _BLOCK_TOKENS = 1 << 16, 1 << 20


def write_corpus(index: CorpusIndex, folder: Path, settings: CorpusSettings, key: str) -> None:
    """Writes the cache of a corpus.

    Args:
        index: of the whole corpus.
        folder: of the cache.
        settings: how the corpus becomes pairs of ids.
        key: of the cache.

    Raises:
        ValueError: a part has no pair.
    """
    renumbering = Renumbering(index.words(), index.counts(settings.min_dialogues), settings)
    vocabulary = renumbering.vocabulary
    with _Files(folder, renumbering, settings) as files:
        for block in _blocks(index):
            files.add(block)
    report = index.report or []
    _check_parts(files, settings, report)
    counts, finder = files.counts, files.finder
    summary = [
        *report,
        f"{files.num_pairs[0]:,} pairs to train on, {files.num_pairs[1]:,} held out; left out: "
        f"{finder.num_empty:,} pairs with an empty turn, {finder.num_unpaired:,} turns without a "
        "partner",
        f"{counts.num_tokens:,} tokens, vocabulary of {len(vocabulary):,}, "
        f"{counts.unknown_rate:.2%} of the held-out tokens are unknown",
    ]
    manifest = {"key": key, "summary": summary, "unknown_rate": counts.unknown_rate}
    codec = TextCodec(settings.text, vocabulary)
    arrays = {"unigram_counts": counts.unigrams}
    write_cache(folder, arrays, codec, renumbering.unknown_words, manifest)


class _Files:
    """The files of a cache that grow with the corpus, written block by block; used as a context.

    Args:
        folder: of the cache.
        renumbering: gives the ids.
        settings: how the corpus becomes pairs.

    Attributes:
        counts: of the ids.
        finder: of the pairs.
        num_pairs: of each of `PARTS`.
    """

    def __init__(self, folder: Path, renumbering: Renumbering, settings: CorpusSettings):
        self._renumbering = renumbering
        self.counts = _Counts(len(renumbering.vocabulary))
        self.finder = PairFinder(pairing=settings.pairing, context=settings.context)
        self.num_pairs = [0] * len(PARTS)
        self._end = 0
        num_ids = len(renumbering.vocabulary) + len(renumbering.unknown_words)
        self._stack = ExitStack()

        def opened(name: str, dtype: type[np.generic], *row_shape: int) -> ArrayFile:
            path = folder / f"{name}.npy"
            return self._stack.enter_context(ArrayFile(path, dtype, row_shape))

        self._tokens = opened("tokens", np.uint16 if num_ids <= 1 << 16 else np.uint32)
        self._offsets, self._characters = (
            opened("offsets", np.int64),
            opened("characters", np.uint32),
        )
        self._parts = [opened(f"{part}_pairs", np.int32, 2) for part in PARTS]
        self._offsets.append(np.zeros(1, np.int64))

    def __enter__(self) -> _Files:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def add(self, block: _Block) -> None:
        """Writes what a block has."""
        ids = self._renumbering.ids(block.words, block.bounds, SEPARATOR)
        lengths = self._renumbering.lengths(block.words, block.bounds)
        self._tokens.append(ids)
        self._offsets.append(self._end + np.cumsum(lengths))
        self._characters.append(block.characters)
        self._end += len(ids)
        pairs = self.finder.find((block.marks & BEGINS) > 0, lengths == 0)
        is_held_out = (block.marks & HELD_OUT) > 0
        answers = pairs[:, 1] - block.first_turn
        part_of = is_held_out[answers].astype(int)
        for part, file in enumerate(self._parts):
            file.append(pairs[part_of == part])
            self.num_pairs[part] += int(np.sum(part_of == part))
        self.counts.add(ids, lengths, is_held_out, answers[part_of == 0])


class _Block(NamedTuple):
    """Some turns of a corpus that are next to each other.

    Attributes:
        first_turn: the number of the first one.
        words: uint32, their provisional ids.
        bounds: int64 [turns + 1], where each turn begins in them, and the end.
        characters, marks: of the turns, as in the index.
    """

    first_turn: int
    words: np.ndarray
    bounds: np.ndarray
    characters: np.ndarray
    marks: np.ndarray


def _blocks(index: CorpusIndex) -> Iterator[_Block]:
    """Yields all turns in blocks, of at most `_BLOCK_TOKENS` tokens or one turn."""
    turn = word = 0
    while turn < index.num_turns:
        ends = np.cumsum(index.read("lengths", turn, _BLOCK_TURNS), dtype=np.int64)
        size = max(1, int(np.searchsorted(ends, _BLOCK_TOKENS, "right")))
        bounds = np.concatenate([[0], ends[:size]])
        words = index.read("tokens", word, int(bounds[-1]))
        characters, marks = (index.read(name, turn, size) for name in ("characters", "marks"))
        yield _Block(turn, words, bounds, characters, marks)
        turn, word = turn + size, word + int(bounds[-1])


def _check_parts(files: _Files, settings: CorpusSettings, report: Sequence[str]) -> None:
    num_train, num_held_out = files.num_pairs
    if not (num_train and num_held_out):
        found = f" What was read: {'; '.join(report)}." if report else ""
        raise ValueError(
            "A corpus must give at least one pair to train on and one to hold out. Received "
            f"{num_train} and {num_held_out}. Whole dialogues are held out: give more of them, or "
            f"another share than held_out={settings.held_out}.{found}"
        )


class _Counts:
    """Counts the ids of the training answers, and the unknown ids of the held-out turns.

    Args:
        vocabulary_size: number of ids.

    Attributes:
        unigrams: int64 [vocabulary_size], of the training answers with their END.
        num_tokens: of all turns.
    """

    def __init__(self, vocabulary_size: int):
        self.unigrams = np.zeros(vocabulary_size, np.int64)
        self.num_tokens = 0
        self._num_unknown = self._num_held_out = 0

    def add(
        self, ids: np.ndarray, lengths: np.ndarray, held_out: np.ndarray, answers: np.ndarray
    ) -> None:
        """Counts the ids of some turns.

        Args:
            ids: of all of them, with separators.
            lengths: the number of ids of each turn.
            held_out: whether each turn is held out.
            answers: the places of those that are the answer of a training pair.
        """
        is_text = ids != SEPARATOR
        ids = np.where(ids < len(self.unigrams), ids, UNKNOWN)
        is_answer = np.zeros(len(lengths), bool)
        is_answer[answers] = True
        answered = ids[is_text & np.repeat(is_answer, lengths)]
        self.unigrams += np.bincount(answered, minlength=len(self.unigrams))
        self.unigrams[END] += len(answers)
        self.num_tokens += int(np.sum(is_text))
        of_held_out = ids[is_text & np.repeat(held_out, lengths)]
        self._num_held_out += len(of_held_out)
        self._num_unknown += int(np.sum(of_held_out == UNKNOWN))

    @property
    def unknown_rate(self) -> float:
        """The share of unknown ids in the held-out turns."""
        return self._num_unknown / max(1, self._num_held_out)

"""From the index of dialogues to a corpus, one block of turns after another."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import numpy as np

from towers.data.prepared.chunks import Spelling
from towers.data.prepared.corpus import CODEC, array_file, dtype_of_ids, write_manifest
from towers.data.prepared.dialogue_corpus import PARTS, UNKNOWN_WORDS
from towers.data.prepared.dialogue_index import BEGINS, HAS_ROLES, HELD_OUT, Block, DialogueIndex
from towers.data.prepared.preparation import DialoguePreparation
from towers.data.text import TextCodec, Vocabulary, build_vocabulary
from towers.ground.special_ids import END, SEPARATOR, UNKNOWN


def write_dialogues(
    index: DialogueIndex, folder: Path, settings: DialoguePreparation, key: str
) -> None:
    """Writes the corpus of all dialogues; raises ValueError if a part has no pair."""
    vocabulary = build_vocabulary(
        index.counts(settings.min_dialogues),
        settings.vocabulary_size,
        copies=settings.copy_unknown,
    )
    unknown_words: list[str] = []
    spelling = Spelling([_ids_of(word, vocabulary, unknown_words) for word in index.words()])
    counts = _Counts(len(vocabulary))
    finder = PairFinder(pairing=settings.pairing, context=settings.context)
    num_ids = len(vocabulary) + len(unknown_words)
    with _Arrays(folder, num_ids) as arrays:
        for block in index.blocks():
            arrays.add(block, spelling, finder, counts)
        arrays.append("unigram_counts", counts.unigrams)
    num_train, num_held_out = arrays.num_pairs
    report = index.report or []
    if not (num_train and num_held_out):
        found = f" What was read: {'; '.join(report)}." if report else ""
        raise ValueError(
            "A corpus must give at least one pair to train on and one to hold out. Received "
            f"{num_train} and {num_held_out}. Whole dialogues are held out: give more of them, or "
            f"another fraction than held_out={settings.held_out}.{found}"
        )
    words = json.dumps(unknown_words, ensure_ascii=False, indent=0)
    (folder / UNKNOWN_WORDS).write_text(words, encoding="utf-8")
    TextCodec(settings.text, vocabulary).save(folder / CODEC)
    summary = [
        *report,
        f"{num_train:,} pairs to train on, {num_held_out:,} held out; left out: "
        f"{finder.num_empty:,} pairs with an empty turn, {finder.num_unpaired:,} turns without a "
        "partner",
        f"{counts.num_tokens:,} tokens, vocabulary of {len(vocabulary):,}, "
        f"{counts.unknown_rate:.2%} of the held-out tokens are unknown",
    ]
    facts = {
        "unknown_rate": counts.unknown_rate,
        "pairs": dict(zip(PARTS, arrays.num_pairs, strict=True)),
    }
    write_manifest(folder, key, summary, arrays.types, facts)


def _ids_of(word: str, vocabulary: Vocabulary, unknown_words: list[str]) -> tuple[int, ...]:
    """Returns the ids of a word; an unknown one that may be copied is noted and gets its own."""
    if not vocabulary.copies or vocabulary.id_of(word) is not None:
        return vocabulary.ids(word)
    unknown_words.append(word)
    return (len(vocabulary) + len(unknown_words) - 1,)


class _Arrays(ExitStack):
    """The arrays of a corpus, written block by block; used as a context.

    Mapped into memory instead, a full disk would be a SIGBUS.

    Attributes:
        types: {name: the name of its type, then the shape of a row}.
        num_pairs: of each of `PARTS`.
    """

    def __init__(self, folder: Path, num_ids: int):
        super().__init__()
        self.types: dict[str, Sequence] = {
            "tokens": [dtype_of_ids(num_ids).name],
            "offsets": ["int64"],
            "characters": ["uint32"],
            "unigram_counts": ["int64"],
            **{f"{part}_pairs": ["int32", 2] for part in PARTS},
        }
        self.num_pairs = [0] * len(PARTS)
        self._end = 0
        self._files = {
            name: self.enter_context(array_file(folder, name).open("wb")) for name in self.types
        }
        self.append("offsets", np.zeros(1, np.int64))

    def append(self, name: str, rows: np.ndarray) -> None:
        """Writes further rows of an array."""
        self._files[name].write(np.ascontiguousarray(rows, self.types[name][0]).data)

    def add(self, block: Block, spelling: Spelling, finder: PairFinder, counts: _Counts) -> None:
        """Writes what a block has."""
        ids, lengths = spelling.ids(block.words, block.num_words, SEPARATOR)
        self.append("tokens", ids)
        self.append("offsets", self._end + np.cumsum(lengths))
        self.append("characters", block.characters)
        self._end += len(ids)
        has_roles = (block.marks & HAS_ROLES) > 0
        pairs = finder.find((block.marks & BEGINS) > 0, lengths == 0, has_roles)
        is_held_out = (block.marks & HELD_OUT) > 0
        answers = pairs[:, 1] - block.first_turn
        part_of = is_held_out[answers].astype(int)
        for number, part in enumerate(PARTS):
            self.append(f"{part}_pairs", pairs[part_of == number])
            self.num_pairs[number] += int(np.sum(part_of == number))
        counts.add(ids, lengths, is_held_out, answers[part_of == 0])


class PairFinder:
    """Finds the pairs whose answer is in a block; blocks come in order.

    Attributes:
        num_empty: number of pairs left out because their answer, or the turn before it, is empty.
        num_unpaired: number of turns that are in no pair.
    """

    def __init__(self, *, pairing: str, context: int):
        self._alternates, self._context = pairing == "alternate", context
        self._num_turns = self._start = 0
        self._was_empty = True
        self.num_empty = self.num_unpaired = 0

    def find(
        self, begins: np.ndarray, is_empty: np.ndarray, has_roles: np.ndarray | bool = False
    ) -> np.ndarray:
        """Returns the first turn of the question and the turn of the answer, int32 [pairs, 2].

        Args:
            begins: bool, whether each turn of the block begins a dialogue.
            is_empty: bool, whether it has no token.
            has_roles: bool, whether the odd turns of its dialogue alone are answers.
        """
        turns = np.arange(self._num_turns, self._num_turns + len(begins))
        starts = np.maximum.accumulate(np.where(begins, turns, self._start))
        within = turns - starts
        is_answer = (within > 0) & ((within % 2 == 1) | ~(self._alternates | np.asarray(has_roles)))
        self.num_unpaired += (
            len(turns) - 2 * int(np.sum(is_answer))
            if self._alternates
            else int(np.sum(begins)) - int(np.sum(within == 1))
        )
        before = np.concatenate([[self._was_empty], is_empty[:-1]])
        is_usable = is_answer & ~is_empty & ~before
        self.num_empty += int(np.sum(is_answer & ~is_usable))
        self._num_turns += len(begins)
        if len(begins):
            self._start, self._was_empty = int(starts[-1]), bool(is_empty[-1])
        answers = turns[is_usable]
        firsts = np.maximum(starts[is_usable], answers - 1 - self._context)
        return np.stack([firsts, answers], axis=1).astype(np.int32)


class _Counts:
    """Counts the ids of the training answers, and the unknown ids of the held-out turns.

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
            answers: the indices of those that are the answer of a training pair.
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
        """The fraction of unknown ids in the held-out turns."""
        return self._num_unknown / max(1, self._num_held_out)

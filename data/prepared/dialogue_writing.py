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
from towers.data.prepared.dialogue_index import HELD_OUT, TRAINED, Block, DialogueIndex
from towers.data.prepared.pairs import PairFinder, Pairs, blocks_with_pairs, find_repeats
from towers.data.prepared.preparation import DialoguePreparation
from towers.data.text import TextCodec, Vocabulary, learn_vocabulary
from towers.ground.progress import count_of
from towers.ground.special_ids import END, SEPARATOR, UNKNOWN


def write_dialogues(
    index: DialogueIndex,
    folder: Path,
    settings: DialoguePreparation,
    key: str,
    *,
    keep_apart: bool,
    codec: TextCodec | None = None,
) -> None:
    """Writes the corpus of all dialogues; raises ValueError if a part has no pair.

    Args:
        index: of the dialogues.
        folder: of the corpus.
        settings: how dialogues become pairs.
        key: of the corpus.
        keep_apart: whether a pair that both parts have is left out of one of them.
        codec: whose vocabulary is used; None makes one. With one, nothing need be trained on.
    """
    vocabulary = (
        codec.vocabulary
        if codec
        else learn_vocabulary(
            settings.text,
            index.counts(settings.min_dialogues),
            settings.vocabulary_size,
            copies=settings.copy_unknown,
        )
    )
    unknown_words: list[str] = []
    spelling = Spelling([_ids_of(word, vocabulary, unknown_words) for word in index.words()])
    counts = _Counts(len(vocabulary))
    finder, *others = (PairFinder(settings.pairing, settings.context) for _ in range(3))
    repeats = find_repeats(index, iter(others))
    keep_apart = keep_apart and repeats.is_possible
    num_repeated = 0
    num_ids = len(vocabulary) + len(unknown_words)
    with _Arrays(folder, num_ids) as arrays:
        hashed = HELD_OUT | TRAINED if len(repeats.hashes) else 0
        for block, pairs in blocks_with_pairs(index, finder, hashed):
            repeated = repeats.of(pairs)
            num_repeated += int(np.sum(repeated))
            kept = pairs.only(~repeated) if keep_apart else pairs
            arrays.add(block, spelling, kept, counts)
        arrays.append("unigram_counts", counts.unigrams)
    num_train, num_held_out = arrays.num_pairs
    report = index.report or []
    if not (num_held_out and (num_train or codec)):
        found = f" What was read: {'; '.join(report)}." if report else ""
        raise ValueError(
            "A corpus must give at least one pair to train on and one to test on. Received "
            f"{num_train} and {num_held_out}. Whole dialogues are kept for the test: give more of "
            f"them, or another fraction than held_out={settings.held_out}.{found}"
        )
    words = json.dumps(unknown_words, ensure_ascii=False, indent=0)
    (folder / UNKNOWN_WORDS).write_text(words, encoding="utf-8")
    TextCodec(settings.text, vocabulary).save(folder / CODEC)
    summary = [
        *report,
        f"{count_of(num_train, 'pair')} to train on, {num_held_out:,} to test on; left out: "
        f"{count_of(finder.num_empty, 'pair')} with an empty turn, "
        f"{count_of(finder.num_unpaired, 'turn')} without a partner",
        *_describe_repeats(num_repeated, PARTS[repeats.leaves], keep_apart=keep_apart),
        f"{counts.num_tokens:,} tokens, vocabulary of {len(vocabulary):,}, "
        f"{counts.unknown_rate:.2%} of the test's tokens are unknown",
    ]
    facts = {
        "unknown_rate": counts.unknown_rate,
        "pairs": dict(zip(PARTS, arrays.num_pairs, strict=True)),
    }
    write_manifest(folder, key, summary, arrays.types, facts)


def _describe_repeats(number: int, part: str, *, keep_apart: bool) -> list[str]:
    where = {"train": "training", "held_out": "test"}[part]
    does = f"left out of the {where}" if keep_apart else "kept in both"
    return [f"{count_of(number, 'pair')} of both the training and the test, {does}"] * bool(number)


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

    def add(self, block: Block, spelling: Spelling, pairs: Pairs, counts: _Counts) -> None:
        """Writes what a block has."""
        ids, lengths = spelling.ids(block.words, block.num_words, SEPARATOR)
        self.append("tokens", ids)
        self.append("offsets", self._end + np.cumsum(lengths))
        self.append("characters", block.characters)
        self._end += len(ids)
        for number, part in enumerate(PARTS):
            own = pairs.turns[pairs.is_held_out == bool(number)]
            self.append(f"{part}_pairs", own)
            self.num_pairs[number] += len(own)
        answers = pairs.turns[~pairs.is_held_out, 1] - block.first_turn
        counts.add(ids, lengths, (block.marks & HELD_OUT) > 0, answers)


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

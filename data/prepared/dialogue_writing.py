"""From the index of dialogues to a corpus, one block of turns after another."""

from __future__ import annotations

import functools
import json
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import numpy as np

from towers.data.prepared.chunks import Spelling
from towers.data.prepared.corpus import CODEC, array_file, dtype_of_ids, write_manifest
from towers.data.prepared.dialogue_corpus import PARTS, UNKNOWN_WORDS
from towers.data.prepared.dialogue_index import HELD_OUT, TRAINED, Block, DialogueIndex
from towers.data.prepared.pairs import Pairs, find_pairs, find_repeats
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
    spelling = Spelling([_ids_of(word, vocabulary, unknown_words) for word in index.words])
    find = functools.partial(find_pairs, pairing=settings.pairing, context=settings.context)
    repeats = find_repeats(index, find, apart=keep_apart)
    num_ids = len(vocabulary) + len(unknown_words)
    with _Arrays(folder, spelling, num_ids, len(vocabulary)) as arrays:
        hashed = HELD_OUT | TRAINED if any(map(len, repeats.given_up)) else 0
        for block in index.blocks():
            pairs = find(block, hashed=hashed)
            repeated = repeats.of(pairs)
            arrays.num["repeated"] += int(np.sum(repeated))
            arrays.add(block, pairs, ~repeated | (not repeats.kept_apart))
        arrays.append("unigram_counts", arrays.unigrams)
    num = arrays.num
    num_train, num_held_out = (num[part] for part in PARTS)
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
    told = [f"{count_of(num_train, 'pair')} to train on, {num_held_out:,} to test on"]
    if num["empty"]:
        told.append(f"left out {count_of(num['empty'], 'pair')} with an empty turn")
    if num["unpaired"]:
        told.append(f"left out {count_of(num['unpaired'], 'turn')} without a partner")
    if num["repeated"] and repeats.kept_apart:
        told.append(f"left out {count_of(num['repeated'], 'pair')} that the other part has")
    elif num["repeated"]:
        told.append(f"of those to test on, {num['repeated']:,} are trained on too")
    unknown_rate = num["unknown tokens"] / max(1, num["held-out tokens"])
    summary = [
        *report,
        "; ".join(told),
        f"{num['tokens']:,} tokens, vocabulary of {len(vocabulary):,}, "
        f"{unknown_rate:.2%} of the test's tokens are unknown",
    ]
    facts = {"unknown_rate": unknown_rate, "pairs": {part: num[part] for part in PARTS}}
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

    Args:
        folder: of the corpus.
        spelling: of the words of the index.
        num_ids: of the vocabulary, and of the words that it does not have.
        vocabulary_size: number of the former.

    Attributes:
        types: {name: the name of its type, then the shape of a row}.
        unigrams: int64 [vocabulary_size], counts of the ids of the training answers with their END.
        num: of the pairs of each of `PARTS`, of what is left out of them, and of tokens.
    """

    def __init__(self, folder: Path, spelling: Spelling, num_ids: int, vocabulary_size: int):
        super().__init__()
        self.types: dict[str, Sequence] = {
            "tokens": [dtype_of_ids(num_ids).name],
            "offsets": ["int64"],
            "characters": ["uint32"],
            "unigram_counts": ["int64"],
            **{f"{part}_pairs": ["int32", 2] for part in PARTS},
        }
        self.unigrams = np.zeros(vocabulary_size, np.int64)
        self.num: Counter[str] = Counter()
        self._spelling, self._end = spelling, 0
        self._files = {
            name: self.enter_context(array_file(folder, name).open("wb")) for name in self.types
        }
        self.append("offsets", np.zeros(1, np.int64))

    def append(self, name: str, rows: np.ndarray) -> None:
        """Writes further rows of an array."""
        self._files[name].write(np.ascontiguousarray(rows, self.types[name][0]).data)

    def add(self, block: Block, pairs: Pairs, kept: np.ndarray) -> None:
        """Writes what a block has, with those of its pairs that are kept."""
        ids, lengths = self._spelling.ids(block.words, block.num_words, SEPARATOR)
        self.append("tokens", ids)
        self.append("offsets", self._end + np.cumsum(lengths))
        self.append("characters", block.characters)
        self._end += len(ids)
        train, held_out = (pairs.turns[kept & (pairs.is_held_out == one)] for one in (False, True))
        for part, turns in zip(PARTS, (train, held_out), strict=True):
            self.append(f"{part}_pairs", turns)
            self.num[part] += len(turns)
        self.num["empty"] += pairs.num_empty
        self.num["unpaired"] += pairs.num_unpaired
        self._count(block, ids, lengths, train[:, 1] - block.first_turn)

    def _count(
        self, block: Block, ids: np.ndarray, lengths: np.ndarray, answers: np.ndarray
    ) -> None:
        """Counts ids with separators, so many of each turn, of which some are training answers."""
        is_text = ids != SEPARATOR
        ids = np.where(ids < len(self.unigrams), ids, UNKNOWN)
        is_answer = np.zeros(len(lengths), bool)
        is_answer[answers] = True
        answered = ids[is_text & np.repeat(is_answer, lengths)]
        self.unigrams += np.bincount(answered, minlength=len(self.unigrams))
        self.unigrams[END] += len(answers)
        of_held_out = ids[is_text & np.repeat((block.marks & HELD_OUT) > 0, lengths)]
        self.num["tokens"] += int(np.sum(is_text))
        self.num["held-out tokens"] += len(of_held_out)
        self.num["unknown tokens"] += int(np.sum(of_held_out == UNKNOWN))

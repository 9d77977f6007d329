"""Repeated answers: which pairs of a corpus stay when no answer may occur too often."""

from __future__ import annotations

import collections

import numpy as np

from towers.data.prepared.dialogue_corpus import DialogueCorpus
from towers.ground.random_numbers import REPEATS_STREAM, permutation


def within_repeats(corpus: DialogueCorpus, answers: np.ndarray, most: int) -> np.ndarray:
    """Returns bool [n]: which pairs stay so that no answer, given by its turn, occurs more often.

    Answers are the same if they differ in punctuation, in capital letters, or in how often a word
    is said in a row. Which of them stay is a function of the answers alone: the first in a fixed
    random order, so that they come from everywhere in the corpus, and are the same ones for every
    seed of a run.
    """
    stays = np.zeros(len(answers), bool)
    seen: collections.Counter[bytes] = collections.Counter()
    tokens, offsets = np.asarray(corpus.tokens), np.asarray(corpus.offsets)
    same = _same_ids(corpus)
    for index in permutation(len(answers), seed=0, epoch=0, stream=REPEATS_STREAM):
        turn = answers[index]
        answer = _essence(tokens[offsets[turn] : offsets[turn + 1]], same)
        stays[index] = seen[answer] < most
        seen[answer] += 1
    return stays


def _same_ids(corpus: DialogueCorpus) -> np.ndarray:
    """Returns for each id of a corpus the first one of the same letters, -1 for one without."""
    vocabulary = corpus.text.vocabulary
    texts = ("".join(vocabulary.tokens([number])) for number in range(len(vocabulary)))
    words = [*texts, *corpus.unknown_words]  # Special ids have no text.
    first: dict[str, int] = {}
    folded = ("".join(filter(str.isalnum, word.casefold())) for word in words)
    return np.array(
        [first.setdefault(word, number) if word else -1 for number, word in enumerate(folded)],
        np.int64,
    )


def _essence(answer: np.ndarray, same: np.ndarray) -> bytes:
    """Returns what is compared of an answer; all of its ids if no word is among them."""
    ids = same[answer]
    ids = ids[ids >= 0]
    if not len(ids):
        return answer.tobytes()
    return ids[np.concatenate([[True], ids[1:] != ids[:-1]])].tobytes()

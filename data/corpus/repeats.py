"""Repeated answers: which pairs of a corpus stay when no answer may occur too often."""

from __future__ import annotations

import collections

import numpy as np

from towers.data.batching.random_numbers import REPEATS_STREAM, permutation
from towers.data.corpus.cache import Corpus


def within_repeats(corpus: Corpus, answers: np.ndarray, most: int) -> np.ndarray:
    """Returns bool [n]: which pairs stay so that no answer, compared by its ids, occurs more often.

    Which of them stay is a function of the answers alone: the first in a fixed random order, so
    that they come from everywhere in the corpus, and are the same ones for every seed of a run.

    Args:
        corpus: the prepared corpus.
        answers: int [n], the turn of each pair's answer.
        most: how often an answer may occur, at least 1.
    """
    stays = np.zeros(len(answers), bool)
    seen: collections.Counter[bytes] = collections.Counter()
    tokens, offsets = np.asarray(corpus.tokens), np.asarray(corpus.offsets)
    for place in permutation(len(answers), seed=0, epoch=0, stream=REPEATS_STREAM):
        turn = answers[place]
        answer = tokens[offsets[turn] : offsets[turn + 1]].tobytes()
        stays[place] = seen[answer] < most
        seen[answer] += 1
    return stays

"""What is read and what is written of each pair: the answer to the question, or the other way.

The second direction and the third are for models that rerank answers by their mutual information
with the question (Li et al. 2016, "A Diversity-Promoting Objective Function for Neural Conversation
Models").
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from towers.data.prepared.dialogue_corpus import DialogueCorpus

DIRECTIONS = ("forward", "backward", "answers")
_BLOCK_PAIRS = 1 << 20


class Slices(NamedTuple):
    """The two parts of each pair as slices of the corpus's tokens.

    Attributes:
        read: int64 [n, 2], start and end of the ids that are read.
        written: int64 [n, 2], start and end of the ids that are written, with the place of END.
    """

    read: np.ndarray
    written: np.ndarray


def slices_of(corpus: DialogueCorpus, pairs: np.ndarray, direction: str) -> Slices:
    """Returns what is read and written of each pair.

    - forward: the question with its earlier turns is read, the answer is written.
    - backward: the answer is read, the last turn of the question is written.
    - answers: one UNKNOWN is read, whose position in the slices is that of the answer's SEPARATOR,
      and the answer is written: a language model of answers.

    Pairs are int [n, 2], as in `DialogueCorpus.pairs`; the direction is one of `DIRECTIONS`.
    """
    offsets, (firsts, answers) = corpus.offsets, pairs.T
    # A SEPARATOR follows every turn. It is not read, and END takes its place in what is written.
    bounds = {
        "forward": (offsets[firsts], offsets[answers] - 1),
        "backward": (offsets[answers], offsets[answers + 1] - 1),
        "answers": (offsets[answers + 1] - 1, offsets[answers + 1]),
    }
    turns = written_turns(pairs, direction)
    return Slices(np.stack(bounds[direction], 1), np.stack([offsets[turns], offsets[turns + 1]], 1))


def lengths_of(
    corpus: DialogueCorpus, pairs: np.ndarray, direction: str
) -> tuple[np.ndarray, np.ndarray]:
    """Returns the numbers of ids that are read and written of each pair, int32 [n] each.

    Arguments as in `slices_of`, of whose slices few are in memory at a time.
    """
    lengths = np.empty([2, len(pairs)], np.int32)
    for start in range(0, len(pairs), _BLOCK_PAIRS):
        block = slice(start, start + _BLOCK_PAIRS)
        slices = slices_of(corpus, pairs[block], direction)
        lengths[:, block] = [np.diff(part)[:, 0] for part in slices]
    return lengths[0], lengths[1]


def written_turns(pairs: np.ndarray, direction: str) -> np.ndarray:
    """Returns the turn of each pair that is written, int [n]."""
    return pairs[:, 1] - (direction == "backward")

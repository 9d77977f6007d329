"""The index of a corpus, collected in one pass over its turns: provisional ids, counts, pairs."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from towers.data.corpus.tokenising import TokenisedChunk
from towers.data.dialogues import pair_turns, unpaired_turns


class CorpusIndex:
    """The part of a corpus that stays in memory, some bytes a turn; its tokens go to disk.

    The provisional id of a token is its place in the order of first occurrences.

    Args:
        pairing, context: as in `pair_turns`.

    Attributes:
        num_dialogues, num_turns: read so far.
        num_unpaired: number of turns that are in no pair.
    """

    def __init__(self, *, pairing: str, context: int):
        self._pairing, self._context = pairing, context
        self._ids: dict[str, int] = {}
        self._counts, self._dialogue_counts = np.zeros([2, 1 << 16], np.int64)
        self._lengths, self._characters = array("I"), array("I")
        self._held_out = array("B")
        self._dialogues = array("I")  # The number of each turn's dialogue.
        self._pairs = array("i")
        self.num_dialogues = self.num_turns = self.num_unpaired = 0

    def turns_of(self, dialogues: Iterable[tuple[bool, Sequence[str]]]) -> Iterator[str]:
        """Yields every turn, and records its pairs and its part.

        Args:
            dialogues: (whether it is held out, its turns) of each dialogue.
        """
        for is_held_out, turns in dialogues:
            for pair in pair_turns(len(turns), pairing=self._pairing, context=self._context):
                self._pairs.extend([self.num_turns + place for place in pair])
            self.num_unpaired += unpaired_turns(len(turns), pairing=self._pairing)
            self._held_out.extend([is_held_out] * len(turns))
            self._dialogues.extend([self.num_dialogues] * len(turns))
            self.num_turns += len(turns)
            self.num_dialogues += 1
            yield from turns

    def add(self, chunk: TokenisedChunk) -> np.ndarray:
        """Returns the next turns' tokens as provisional ids, uint32, and counts training tokens.

        A dialogue that is in two chunks counts twice.
        """
        ids = self._ids
        chunk_ids = np.array([ids.setdefault(token, len(ids)) for token in chunk.table], np.uint32)
        places = np.array(chunk.places, np.int64)
        start = len(self._lengths)
        turns = slice(start, start + len(chunk.lengths))
        trained = np.repeat(~np.array(self._held_out[turns], bool), chunk.lengths)
        training = places[trained]
        if len(ids) > len(self._counts):
            self._counts = np.pad(self._counts, (0, len(ids)))
            self._dialogue_counts = np.pad(self._dialogue_counts, (0, len(ids)))
        self._counts[chunk_ids] += np.bincount(training, minlength=len(chunk_ids))
        dialogues = np.repeat(np.array(self._dialogues[turns], np.int64), chunk.lengths)[trained]
        once = np.unique(dialogues * len(chunk_ids) + training) % max(1, len(chunk_ids))
        self._dialogue_counts[chunk_ids] += np.bincount(once, minlength=len(chunk_ids))
        self._lengths.extend(chunk.lengths)
        self._characters.extend(chunk.characters)
        return chunk_ids[places]

    def tokens(self) -> list[str]:
        """Returns every token, in the order of the provisional ids."""
        return list(self._ids)

    def counts(self, min_dialogues: int = 1) -> dict[str, int]:
        """Returns the number of occurrences of each token in the training part.

        Args:
            min_dialogues: tokens that are in fewer dialogues of it are left out.
        """
        counts, dialogues = (
            part[: len(self._ids)].tolist() for part in (self._counts, self._dialogue_counts)
        )
        return {
            token: count
            for token, count, number in zip(self._ids, counts, dialogues, strict=True)
            if number >= max(1, min_dialogues)
        }

    @property
    def lengths(self) -> np.ndarray:
        """The number of tokens of each turn, int64 [num_turns]."""
        return np.array(self._lengths, np.int64)

    @property
    def characters(self) -> np.ndarray:
        """The number of characters of each turn, uint32 [num_turns]."""
        return np.array(self._characters, np.uint32)

    @property
    def held_out(self) -> np.ndarray:
        """Whether each turn is held out, bool [num_turns]."""
        return np.array(self._held_out, bool)

    @property
    def pairs(self) -> np.ndarray:
        """The first turn of the question and the turn of the answer, int32 [n, 2]."""
        return np.array(self._pairs, np.int32).reshape(-1, 2)

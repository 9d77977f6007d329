"""A corpus while its turns pass by once: provisional numbers of tokens, counts and pairs."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from towers.data.corpus.tokenising import TokenisedChunk
from towers.data.dialogues import pair_turns, unpaired_turns


class Corpus:
    """What is kept in memory of a corpus; its tokens go to disk, some bytes a turn stay.

    A token's number is its place in the order in which tokens are first met.

    Args:
        pairing, context: as in `pair_turns`.

    Attributes:
        num_dialogues, num_turns: taken in so far.
        num_unpaired: turns that are in no pair.
    """

    def __init__(self, *, pairing: str, context: int):
        self._pairing, self._context = pairing, context
        self._numbers: dict[str, int] = {}
        self._counts = np.zeros(1 << 16, np.int64)
        self._lengths, self._characters = array("I"), array("I")
        self._held_out = array("B")
        self._pairs = array("i")
        self.num_dialogues = self.num_turns = self.num_unpaired = 0

    def take_in(self, dialogues: Iterable[tuple[bool, Sequence[str]]]) -> Iterator[str]:
        """Yields every turn, and notes to which pairs and to which part it belongs.

        Args:
            dialogues: (whether it is held out, its turns) of each.
        """
        for is_held_out, turns in dialogues:
            for pair in pair_turns(len(turns), pairing=self._pairing, context=self._context):
                self._pairs.extend([self.num_turns + place for place in pair])
            self.num_unpaired += unpaired_turns(len(turns), pairing=self._pairing)
            self._held_out.extend([is_held_out] * len(turns))
            self.num_turns += len(turns)
            self.num_dialogues += 1
            yield from turns

    def add(self, chunk: TokenisedChunk) -> np.ndarray:
        """Returns the next turns' tokens as uint32 numbers, and counts those to learn from."""
        numbers = self._numbers
        mapped = np.array(
            [numbers.setdefault(token, len(numbers)) for token in chunk.table], np.uint32
        )
        places = np.array(chunk.places, np.int64)
        start = len(self._lengths)
        parts = np.array(self._held_out[start : start + len(chunk.lengths)], bool)
        learned = places[np.repeat(~parts, chunk.lengths)]
        if len(numbers) > len(self._counts):
            self._counts = np.pad(self._counts, (0, len(numbers)))
        self._counts[mapped] += np.bincount(learned, minlength=len(mapped))
        self._lengths.extend(chunk.lengths)
        self._characters.extend(chunk.characters)
        return mapped[places]

    def tokens(self) -> list[str]:
        """Returns every token, in the order of their numbers."""
        return list(self._numbers)

    def counts(self) -> dict[str, int]:
        """Returns how often each token occurs in the training part."""
        counted = zip(self._numbers, self._counts[: len(self._numbers)].tolist(), strict=True)
        return {token: count for token, count in counted if count}

    @property
    def lengths(self) -> np.ndarray:
        """How many tokens each turn has, int64 [num_turns]."""
        return np.array(self._lengths, np.int64)

    @property
    def characters(self) -> np.ndarray:
        """How many characters each turn has, uint32 [num_turns]."""
        return np.array(self._characters, np.uint32)

    @property
    def held_out(self) -> np.ndarray:
        """Whether each turn is held out, bool [num_turns]."""
        return np.array(self._held_out, bool)

    @property
    def pairs(self) -> np.ndarray:
        """The first turn of the question and the turn of the answer, int32 [n, 2]."""
        return np.array(self._pairs, np.int32).reshape(-1, 2)

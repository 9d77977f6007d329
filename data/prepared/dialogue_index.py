"""The index of dialogues, collected in one pass: on disk, but for the different words."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from towers.data.prepared.chunks import Chunk, TokenisedChunk
from towers.data.prepared.journal import JournalledFiles

BEGINS, HELD_OUT, HAS_ROLES, TRAINED = 1, 2, 4, 8  # Bits of the mark of a turn.
# Of a value of each token, of each turn, and of each chunk its numbers of turns and of tokens.
_OF_TURNS = {"lengths": np.uint32, "characters": np.uint32, "marks": np.uint8}
_DTYPES = {"tokens": np.uint32, **_OF_TURNS, "sizes": np.uint32}
_WORDS = "words"
_BLOCK_CHUNKS = 8


def marked(dialogues: Iterable[tuple[bool, Sequence[str]]]) -> Iterator[Chunk]:
    """Yields the turns of each dialogue, which may be held out, with their marks."""
    for is_held_out, turns in dialogues:
        mark = HELD_OUT if is_held_out else TRAINED
        mark |= HAS_ROLES if getattr(turns, "has_roles", False) else 0
        if turns:
            yield Chunk(list(turns), [mark | BEGINS, *[mark] * (len(turns) - 1)])


class DialogueIndex(JournalledFiles):
    """The turns of dialogues in files; in memory are their different words alone.

    What an earlier process journalled in the folder of the files is kept.

    Attributes:
        words: {word: its provisional id, its index in the order of first occurrences}.
        report: lines about what was read, None until all of it is.
    """

    def __init__(self, folder: Path):
        self._paths = {name: folder / name for name in (*_DTYPES, _WORDS)}
        super().__init__(folder, self._paths, {"chunks": 0, "report": None})
        with self._paths[_WORDS].open(encoding="utf-8") as lines:
            self.words = {json.loads(line): number for number, line in enumerate(lines)}
        self.report: list[str] | None = self.state["report"]

    def add(self, chunk: TokenisedChunk, marks: np.ndarray) -> None:
        """Writes the provisional ids of the turns of whole dialogues."""
        arrays = {
            "tokens": self._numbers(chunk.table)[chunk.indices],
            "lengths": chunk.lengths,
            "characters": chunk.characters,
            "marks": marks,
            "sizes": np.array([len(marks), len(chunk.indices)], np.uint32),
        }
        for name, values in arrays.items():
            self.append(name, values.data)

    def _numbers(self, words: Sequence[str]) -> np.ndarray:
        """Returns the provisional ids of some words; new ones are written."""
        ids, before = self.words, len(self.words)
        numbers = [ids.setdefault(word, len(ids)) for word in words]
        new = [json.dumps(word) + "\n" for word in words if ids[word] >= before]
        self.append(_WORDS, "".join(new).encode())
        return np.array(numbers, np.uint32)

    def finish(self, report: list[str]) -> None:
        """Keeps the report of dialogues that are read to their end."""
        self.report = self.state["report"] = report
        self.save()

    def counts(self, min_dialogues: int = 1) -> dict[str, int]:
        """Returns the number of occurrences in the training part of words in enough dialogues."""
        uses = np.zeros([2, len(self.words)], np.int64)
        for block in self.blocks():
            uses += _uses(block, len(self.words))
        return {
            word: count
            for word, count, number in zip(self.words, *uses.tolist(), strict=True)
            if number >= max(1, min_dialogues)
        }

    def blocks(self) -> Iterator[Block]:
        """Yields all turns in blocks of whole dialogues, since a chunk has such."""
        turn = word = 0
        sizes = self._read("sizes", 0, -1).reshape(-1, 2)
        for first in range(0, len(sizes), _BLOCK_CHUNKS):
            num_turns, num_words = sizes[first : first + _BLOCK_CHUNKS].sum(0).tolist()
            of_turns = (self._read(name, turn, num_turns) for name in _OF_TURNS)
            yield Block(turn, self._read("tokens", word, num_words), *of_turns)
            turn, word = turn + num_turns, word + num_words

    def _read(self, name: str, start: int, count: int) -> np.ndarray:
        """Returns a part of a saved file; mapped, it would look like used memory."""
        dtype = np.dtype(_DTYPES[name])
        return np.fromfile(self._paths[name], dtype, count, offset=start * dtype.itemsize)


class Block(NamedTuple):
    """The turns of some dialogues that are next to each other.

    Attributes:
        first_turn: the number of the first one.
        words: uint32, the provisional ids of all of them.
        num_words, characters: uint32, of each turn; characters without blanks.
        marks: uint8, of each turn.
    """

    first_turn: int
    words: np.ndarray
    num_words: np.ndarray
    characters: np.ndarray
    marks: np.ndarray


def _uses(block: Block, size: int) -> np.ndarray:
    """Returns how often each of so many words occurs in training dialogues, and in how many.

    They are int64 [2, size].
    """
    is_trained = np.repeat((block.marks & HELD_OUT) == 0, block.num_words)
    words = block.words[is_trained].astype(np.int64)
    dialogues = np.repeat(np.cumsum(block.marks & BEGINS, dtype=np.int64), block.num_words)
    pairs = dialogues[is_trained] * size + words
    pairs.sort()  # Faster than np.unique.
    once = pairs[np.diff(pairs, prepend=-1) > 0] % max(1, size)
    return np.stack([np.bincount(one, minlength=size) for one in (words, once)])

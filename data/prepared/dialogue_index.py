"""The index of dialogues, collected in one pass: on disk, but for the different words."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from towers.data.prepared.chunks import Chunk, TokenisedChunk
from towers.data.prepared.filling import TokenFiles

BEGINS, HELD_OUT, HAS_ROLES, TRAINED = 1, 2, 4, 8  # Bits of the mark of a turn.
_DTYPES = {"tokens": np.uint32, "lengths": np.uint32, "characters": np.uint32, "marks": np.uint8}
_WORDS = "words"
_BLOCK_TURNS, _BLOCK_TOKENS = 1 << 16, 1 << 20


def marked(dialogues: Iterable[tuple[bool, Sequence[str]]]) -> Iterator[Chunk]:
    """Yields the turns of each dialogue, which may be held out, with their marks."""
    for is_held_out, turns in dialogues:
        mark = HELD_OUT if is_held_out else TRAINED
        mark |= HAS_ROLES if getattr(turns, "has_roles", False) else 0
        if turns:
            yield Chunk(list(turns), [mark | BEGINS, *[mark] * (len(turns) - 1)])


class DialogueIndex(TokenFiles):
    """The turns of dialogues in files, and the count of each of their words in memory.

    The provisional id of a word is its index in the order of first occurrences.

    What an earlier process journalled in the folder of the files is kept.
    """

    def __init__(self, folder: Path):
        self._paths = {name: folder / name for name in (*_DTYPES, _WORDS)}
        super().__init__(folder, self._paths, {"chunks": 0, "turns": 0, "report": None})
        with self._paths[_WORDS].open(encoding="utf-8") as lines:
            self._ids = {json.loads(line): number for number, line in enumerate(lines)}
        counts = self.array()
        self._counts = np.zeros([2, 1 << 16], np.int64) if counts is None else counts

    @property
    def num_turns(self) -> int:
        """The number of turns in the files."""
        return self.state["turns"]

    @property
    def report(self) -> list[str] | None:
        """Lines about what was read, None until all of it is."""
        return self.state["report"]

    @property
    def content(self) -> str:
        """The number of turns."""
        return f"{self.num_turns:,} turns"

    def add(self, chunk: TokenisedChunk, marks: np.ndarray) -> None:
        """Writes the provisional ids of some turns, and counts training tokens."""
        numbers = self._numbers(chunk.table)
        if len(self._ids) > self._counts.shape[1]:
            self._counts = np.pad(self._counts, [(0, 0), (0, len(self._ids))])
        self._counts[:, numbers] += _uses(chunk, marks)
        arrays = {
            "tokens": numbers[chunk.indices],
            "lengths": chunk.lengths,
            "characters": chunk.characters,
            "marks": marks,
        }
        for name, values in arrays.items():
            self.append(name, values.data)
        self.state["turns"] += len(marks)

    def _numbers(self, words: Sequence[str]) -> np.ndarray:
        """Returns the provisional ids of some words; new ones are written."""
        ids, before = self._ids, len(self._ids)
        numbers = [ids.setdefault(word, len(ids)) for word in words]
        new = [json.dumps(word) + "\n" for word in words if ids[word] >= before]
        self.append(_WORDS, "".join(new).encode())
        return np.array(numbers, np.uint32)

    def save(self, array: np.ndarray | None = None) -> None:
        """Makes sure that all is on the disk, then journals it."""
        super().save(self._counts[:, : len(self._ids)])

    def finish(self, report: list[str]) -> None:
        """Keeps the report of dialogues that are read to their end."""
        self.state["report"] = report
        self.save()

    def words(self) -> list[str]:
        """Returns every word, in the order of the provisional ids."""
        return list(self._ids)

    def counts(self, min_dialogues: int = 1) -> dict[str, int]:
        """Returns the number of occurrences in the training part of words in enough dialogues."""
        counts, dialogues = (part[: len(self._ids)].tolist() for part in self._counts)
        return {
            word: count
            for word, count, number in zip(self._ids, counts, dialogues, strict=True)
            if number >= max(1, min_dialogues)
        }

    def blocks(self) -> Iterator[Block]:
        """Yields all turns in blocks, of at most `_BLOCK_TOKENS` tokens or one turn."""
        turn = word = 0
        while turn < self.num_turns:
            lengths = self._read("lengths", turn, _BLOCK_TURNS)
            ends = np.cumsum(lengths, dtype=np.int64)
            size = max(1, int(np.searchsorted(ends, _BLOCK_TOKENS, "right")))
            words = self._read("tokens", word, int(ends[:size][-1]))
            characters, marks = (self._read(name, turn, size) for name in ("characters", "marks"))
            yield Block(turn, words, lengths[:size], characters, marks)
            turn, word = turn + len(marks), word + len(words)

    def _read(self, name: str, start: int, count: int) -> np.ndarray:
        """Returns a part of a saved file, shorter at its end; mapped, it looks like used memory."""
        dtype = np.dtype(_DTYPES[name])
        return np.fromfile(self._paths[name], dtype, count, offset=start * dtype.itemsize)


class Block(NamedTuple):
    """Some turns of a corpus that are next to each other.

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


def _uses(chunk: TokenisedChunk, marks: np.ndarray) -> np.ndarray:
    """Returns how often each token occurs in training dialogues, and in how many: int64 [2, n]."""
    num_tokens = len(chunk.table)
    is_trained = np.repeat((marks & HELD_OUT) == 0, chunk.lengths)
    indices = chunk.indices[is_trained].astype(np.int64)
    dialogues = np.cumsum(marks & BEGINS, dtype=np.int64)
    pairs = np.repeat(dialogues, chunk.lengths)[is_trained] * num_tokens + indices
    pairs.sort()  # Faster than np.unique.
    once = pairs[np.diff(pairs, prepend=-1) > 0] % max(1, num_tokens)
    return np.stack([np.bincount(one, minlength=num_tokens) for one in (indices, once)])

"""Chunks of texts, the tokens of a chunk, and the ids that spell them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from towers.data.reading.texts import DOCUMENT_END
from towers.data.text import TextSettings, Tokenizer

# Large enough that sending a chunk to a process costs little, small enough to hold several.
CHUNK_TEXTS, CHUNK_CHARACTERS = 2000, 200_000


class Chunk(NamedTuple):
    """Lines or turns that are tokenised together, each with a mark for its reader."""

    texts: list[str]
    marks: list[int]


def in_chunks(runs: Iterable[Chunk]) -> Iterator[Chunk]:
    """Yields runs of texts in chunks, each of which ends with the run that makes it full."""
    chunk, num_characters = Chunk([], []), 0
    for run in runs:
        chunk.texts.extend(run.texts)
        chunk.marks.extend(run.marks)
        num_characters += sum(map(len, run.texts))
        if len(chunk.texts) >= CHUNK_TEXTS or num_characters >= CHUNK_CHARACTERS:
            yield chunk
            chunk, num_characters = Chunk([], []), 0
    if chunk.texts:
        yield chunk


class TokenisedChunk(NamedTuple):
    """The tokens of some texts, each given by its index in a table.

    Attributes:
        table: the distinct tokens.
        indices: uint32, the tokens of all texts one after the other, by their index in the table.
        lengths: uint32, the number of tokens of each text.
        characters: uint32, the number of characters of each text, without blanks.
        num_changed: the number of texts that the normalisation changed, but for blanks around them.
    """

    table: list[str]
    indices: np.ndarray
    lengths: np.ndarray
    characters: np.ndarray
    num_changed: int = 0


def tokenise_chunk(
    texts: Sequence[str], settings: TextSettings, tokenizer: Tokenizer
) -> TokenisedChunk:
    """Returns the tokens of some texts; DOCUMENT_END has none."""
    table: dict[str, int] = {}
    indices: list[int] = []
    lengths, characters = [], []
    num_changed = 0
    for given in texts:
        text = settings.normalise(given) if given != DOCUMENT_END else ""
        num_changed += text != given and text not in ("", given.strip())
        tokens = tokenizer.tokenize(text) if text else []
        indices.extend([table.setdefault(token, len(table)) for token in tokens])
        lengths.append(len(tokens))
        characters.append(len(text) - text.count(" "))
    found = [np.array(values, np.uint32) for values in (indices, lengths, characters)]
    return TokenisedChunk(list(table), found[0], found[1], found[2], num_changed)


class Spelling:
    """The ids of each token of a table, given by what spells it."""

    def __init__(self, spelled: Sequence[Sequence[int]]):
        self._lengths = np.array([len(ids) for ids in spelled], np.int64)
        self._starts = np.cumsum(self._lengths) - self._lengths
        self._ids = np.array([one for ids in spelled for one in ids], np.uint32)

    def ids(
        self,
        indices: np.ndarray,
        num_tokens: np.ndarray,
        end: int | np.ndarray,
        *,
        end_all: bool | np.ndarray = False,
        end_none: bool | np.ndarray = False,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Returns the ids of some texts, uint32, and how many each text has, int64.

        Args:
            indices: unsigned integers, the tokens of all texts one after the other, by their index
                in the table.
            num_tokens: of each text.
            end: the id that follows each text which is not empty, the same one or one for each.
            end_all: whether it follows an empty text, too, of all or of each.
            end_none: whether it follows no text, of all or of each.
        """
        lengths = self._lengths[indices]
        token_ends = np.cumsum(lengths)
        within = np.arange(lengths.sum()) - np.repeat(token_ends - lengths, lengths)
        ids = self._ids[np.repeat(self._starts[indices], lengths) + within]
        text_ends = np.concatenate([[0], token_ends])[np.cumsum(num_tokens, dtype=np.int64)]
        num_ids = np.diff(text_ends, prepend=0)
        ended = ((num_ids > 0) | end_all) & np.logical_not(end_none)
        ends = np.broadcast_to(end, ended.shape)[ended]
        return np.insert(ids, text_ends[ended], ends), num_ids + ended

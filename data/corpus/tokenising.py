"""Turns to tokens, one chunk of turns at a time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from towers.data.text import TextSettings, Tokenizer, make_tokenizer

# Large enough that sending a chunk to a process costs little, small enough to hold several.
CHUNK_TURNS, CHUNK_CHARACTERS = 2000, 200_000


class TokenisedChunk(NamedTuple):
    """The tokens of some turns, each given by its place in a table.

    Attributes:
        table: the distinct tokens.
        places: the tokens of all turns one after the other, by their place in the table.
        lengths: the number of tokens of each turn.
        characters: the number of characters of each turn, without blanks.
    """

    table: list[str]
    places: list[int]
    lengths: list[int]
    characters: list[int]


def in_chunks(turns: Iterable[str]) -> Iterator[list[str]]:
    """Yields the turns in lists, each of which ends with the turn that makes it full."""
    chunk: list[str] = []
    num_characters = 0
    for turn in turns:
        chunk.append(turn)
        num_characters += len(turn)
        if len(chunk) == CHUNK_TURNS or num_characters >= CHUNK_CHARACTERS:
            yield chunk
            chunk, num_characters = [], 0
    if chunk:
        yield chunk


def tokenise_here(
    chunks: Iterable[Sequence[str]], settings: TextSettings
) -> Iterator[TokenisedChunk]:
    """Yields the tokens of each chunk; ValueError or ImportError if there is no tokenizer."""
    tokenizer = make_tokenizer(settings)
    for chunk in chunks:
        yield tokenise_chunk(chunk, settings, tokenizer)


def tokenise_chunk(
    turns: Sequence[str], settings: TextSettings, tokenizer: Tokenizer
) -> TokenisedChunk:
    """Returns the tokens of some turns."""
    chunk = TokenisedChunk([], [], [], [])
    places: dict[str, int] = {}
    for turn in turns:
        text = settings.normalise(turn)
        tokens = tokenizer.tokenize(text) if text else []
        chunk.places.extend([places.setdefault(token, len(places)) for token in tokens])
        chunk.lengths.append(len(tokens))
        chunk.characters.append(len(text) - text.count(" "))
    chunk.table.extend(places)
    return chunk

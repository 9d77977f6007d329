"""Turns to tokens, chunk by chunk, in this process or in several."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from towers.data.text import TextSettings, Tokenizer, make_tokenizer

# A chunk is large enough that handing it over costs little, and small enough to hold several.
CHUNK_TURNS, CHUNK_CHARACTERS = 2000, 200_000


class TokenisedChunk(NamedTuple):
    """The tokens of some turns, each token named by its place in a table.

    Attributes:
        table: the different tokens.
        places: the tokens of all turns one after the other, by their place in the table.
        lengths: how many tokens each turn has.
        characters: how many characters each turn has, blanks not counted.
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
    numbers: dict[str, int] = {}
    for turn in turns:
        text = settings.normalise(turn)
        tokens = tokenizer.tokenize(text) if text else []
        chunk.places.extend([numbers.setdefault(token, len(numbers)) for token in tokens])
        chunk.lengths.append(len(tokens))
        chunk.characters.append(len(text) - text.count(" "))
    chunk.table.extend(numbers)
    return chunk

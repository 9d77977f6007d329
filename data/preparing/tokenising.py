"""Texts to tokens, one chunk of texts at a time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from towers.data.text import TextSettings, Tokenizer, make_tokenizer


class TokenisedChunk(NamedTuple):
    """The tokens of some texts, each given by its place in a table.

    Attributes:
        table: the distinct tokens.
        places: uint32, the tokens of all texts one after the other, by their place in the table.
        lengths: uint32, the number of tokens of each text.
        characters: uint32, the number of characters of each text, without blanks.
    """

    table: list[str]
    places: np.ndarray
    lengths: np.ndarray
    characters: np.ndarray


def tokenise_here(
    chunks: Iterable[Sequence[str]], settings: TextSettings
) -> Iterator[TokenisedChunk]:
    """Yields the tokens of each chunk; ValueError or ImportError if there is no tokenizer."""
    tokenizer = make_tokenizer(settings)
    for chunk in chunks:
        yield tokenise_chunk(chunk, settings, tokenizer)


def tokenise_chunk(
    texts: Sequence[str], settings: TextSettings, tokenizer: Tokenizer
) -> TokenisedChunk:
    """Returns the tokens of some texts."""
    table: dict[str, int] = {}
    places: list[int] = []
    lengths, characters = [], []
    for text in map(settings.normalise, texts):
        tokens = tokenizer.tokenize(text) if text else []
        places.extend([table.setdefault(token, len(table)) for token in tokens])
        lengths.append(len(tokens))
        characters.append(len(text) - text.count(" "))
    arrays = (np.array(values, np.uint32) for values in (places, lengths, characters))
    return TokenisedChunk(list(table), *arrays)

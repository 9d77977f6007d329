"""Decoding: greedy search, beam search and sampling for any model that predicts token by token."""

from towers.models.decoding.generation import Decoded, decode
from towers.models.decoding.options import Decoding
from towers.models.decoding.reading import read_once

__all__ = ["Decoded", "Decoding", "decode", "read_once"]

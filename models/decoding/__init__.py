"""Decoding: greedy search, beam search and sampling for any model that predicts token by token."""

from towers.models.decoding.generation import Decoded, continuation, decode, read_once
from towers.models.decoding.options import Decoding

__all__ = ["Decoded", "Decoding", "continuation", "decode", "read_once"]

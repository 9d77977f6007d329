"""Decoding: greedy search, beam search and sampling, for any model that writes step by step."""

from towers.models.decoding.decode import Decoded, decode
from towers.models.decoding.options import Decoding

__all__ = ["Decoded", "Decoding", "decode"]

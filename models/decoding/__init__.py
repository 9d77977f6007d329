"""Decoding: greedy search, beam search and sampling for any model that predicts token by token."""

from towers.models.decoding.generation import Decoded as Decoded
from towers.models.decoding.generation import continuation as continuation
from towers.models.decoding.generation import decode as decode
from towers.models.decoding.generation import read_once as read_once
from towers.models.decoding.options import Decoding as Decoding

"""Prepared corpora: dialogues to ids in a memory-mapped cache."""

from towers.data.corpus.cache import PreparedPairs, open_prepared
from towers.data.corpus.prepare import Preparation, prepare_dialogues, prepare_files

__all__ = [
    "Preparation",
    "PreparedPairs",
    "open_prepared",
    "prepare_dialogues",
    "prepare_files",
]

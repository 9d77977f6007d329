"""Prepared corpora: dialogues to a memory-mapped cache, the cache to batches."""

from data.prepared.batches import PairBatches, pair_batches
from data.prepared.cache import PreparedPairs, open_prepared
from data.prepared.prepare import Preparation, prepare_dialogues, prepare_files

__all__ = [
    "PairBatches",
    "Preparation",
    "PreparedPairs",
    "open_prepared",
    "pair_batches",
    "prepare_dialogues",
    "prepare_files",
]

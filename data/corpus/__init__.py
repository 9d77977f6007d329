"""Prepared corpora: dialogues to a memory-mapped cache, the cache to batches."""

from towers.data.batching.pairs import PairBatches, pair_batches
from towers.data.corpus.cache import PreparedPairs, open_prepared
from towers.data.corpus.prepare import Preparation, prepare_dialogues, prepare_files

__all__ = [
    "PairBatches",
    "Preparation",
    "PreparedPairs",
    "open_prepared",
    "pair_batches",
    "prepare_dialogues",
    "prepare_files",
]

"""Corpora of dialogues: tokenised once into a memory-mapped cache, then read as batches."""

from towers.data.corpus.batches import pair_batches
from towers.data.corpus.cache import Corpus, open_corpus
from towers.data.corpus.prepare import prepare_dialogues, prepare_files
from towers.data.corpus.settings import CorpusSettings

__all__ = [
    "Corpus",
    "CorpusSettings",
    "open_corpus",
    "pair_batches",
    "prepare_dialogues",
    "prepare_files",
]

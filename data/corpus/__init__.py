"""Batches of question-answer pairs from prepared dialogues."""

from towers.data.corpus.batches import PairBatches, pair_batches

__all__ = ["PairBatches", "pair_batches"]

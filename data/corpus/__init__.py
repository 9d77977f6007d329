"""Batches of question-answer pairs from prepared dialogues."""

from towers.data.corpus.batches import pair_batches

__all__ = ["pair_batches"]

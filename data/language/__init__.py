"""Batches of a text as streams, pieces or sentences."""

from towers.data.language.batches import piece_batches, sentence_batches, stream_batches

__all__ = ["piece_batches", "sentence_batches", "stream_batches"]

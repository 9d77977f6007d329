"""Batches of a text as streams, pieces or sentences."""

from towers.data.language.pieces import PieceBatches, piece_batches
from towers.data.language.sentences import SentenceBatches, sentence_batches
from towers.data.language.streams import StreamBatches, stream_batches

__all__ = [
    "PieceBatches",
    "SentenceBatches",
    "StreamBatches",
    "piece_batches",
    "sentence_batches",
    "stream_batches",
]

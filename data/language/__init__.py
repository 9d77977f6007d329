"""Texts for language models: words to ids, and batches of streams or sentences."""

from towers.data.language.language_text import PARTS, LanguageText, load_language, make_language
from towers.data.language.pieces import PieceBatches, piece_batches
from towers.data.language.sentences import SentenceBatches, sentence_batches
from towers.data.language.streams import StreamBatches, stream_batches
from towers.data.language.vocabulary import END, PAD, UNKNOWN, WordVocabulary, build_words

__all__ = [
    "END",
    "PAD",
    "PARTS",
    "UNKNOWN",
    "LanguageText",
    "PieceBatches",
    "SentenceBatches",
    "StreamBatches",
    "WordVocabulary",
    "build_words",
    "load_language",
    "make_language",
    "piece_batches",
    "sentence_batches",
    "stream_batches",
]

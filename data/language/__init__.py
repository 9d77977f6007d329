"""Texts for language models: words to ids, and batches of streams or sentences."""

from towers.data.language.batches import piece_batches, sentence_batches, stream_batches
from towers.data.language.language_text import PARTS, LanguageText, load_language, make_language
from towers.data.language.vocabulary import END, PAD, UNKNOWN, WordVocabulary, build_words

__all__ = [
    "END",
    "PAD",
    "PARTS",
    "UNKNOWN",
    "LanguageText",
    "WordVocabulary",
    "build_words",
    "load_language",
    "make_language",
    "piece_batches",
    "sentence_batches",
    "stream_batches",
]

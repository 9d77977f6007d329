"""Text to ids and back: normalisation, tokenizers, vocabulary, and the codec made of these.

The package needs only the ground, the standard library and jieba, so that a copy of both works
beside an exported model without the rest of the project.
"""

from .codec import LineCodec, Question, TextCodec, learn_vocabulary
from .normalisation import normalise
from .settings import TextSettings
from .subwords import SUBWORD_FILE, train_subwords
from .tokenizers import Tokenizer, make_tokenizer, unmatched_words
from .vocabulary import (
    NUM_COPIES,
    SPECIALS,
    Vocabulary,
    WordVocabulary,
    build_vocabulary,
    build_words,
)

__all__ = [
    "NUM_COPIES",
    "SPECIALS",
    "SUBWORD_FILE",
    "LineCodec",
    "Question",
    "TextCodec",
    "TextSettings",
    "Tokenizer",
    "Vocabulary",
    "WordVocabulary",
    "build_vocabulary",
    "build_words",
    "learn_vocabulary",
    "make_tokenizer",
    "normalise",
    "train_subwords",
    "unmatched_words",
]

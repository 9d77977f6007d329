"""Text to ids and back: normalisation, tokenizers, the vocabulary and the codec of them all.

It needs the standard library and jieba only, and imports relatively, so that a copy of the folder
answers beside an exported model without the rest of the project.
"""

from .codec import TextCodec
from .normalisation import normalise
from .settings import TextSettings
from .subwords import SUBWORD_FILE, train_subwords
from .tokenizers import Tokenizer, make_tokenizer
from .vocabulary import (
    END,
    PAD,
    SEPARATOR,
    SPECIALS,
    START,
    UNKNOWN,
    Vocabulary,
    build_vocabulary,
)

__all__ = [
    "END",
    "PAD",
    "SEPARATOR",
    "SPECIALS",
    "START",
    "SUBWORD_FILE",
    "UNKNOWN",
    "TextCodec",
    "TextSettings",
    "Tokenizer",
    "Vocabulary",
    "build_vocabulary",
    "make_tokenizer",
    "normalise",
    "train_subwords",
]

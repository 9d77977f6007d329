"""Text to ids and back: normalisation, tokenizers, vocabulary, and the codec made of these.

The package needs only the ground, the standard library and jieba, so that a copy of both works
beside an exported model without the rest of the project.
"""

from .codec import LineCodec as LineCodec
from .codec import Question as Question
from .codec import TextCodec as TextCodec
from .codec import learn_vocabulary as learn_vocabulary
from .normalisation import normalise as normalise
from .settings import TextSettings as TextSettings
from .subwords import SUBWORD_FILE as SUBWORD_FILE
from .subwords import train_subwords as train_subwords
from .tokenizers import Tokenizer as Tokenizer
from .tokenizers import make_tokenizer as make_tokenizer
from .tokenizers import unmatched_words as unmatched_words
from .vocabulary import NUM_COPIES as NUM_COPIES
from .vocabulary import SPECIALS as SPECIALS
from .vocabulary import Vocabulary as Vocabulary
from .vocabulary import WordVocabulary as WordVocabulary
from .vocabulary import build_vocabulary as build_vocabulary
from .vocabulary import build_words as build_words

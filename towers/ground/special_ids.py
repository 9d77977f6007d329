"""The ids of the special tokens of every text, defined once."""

from __future__ import annotations

PAD = 0  # Fills a row behind its last token; no input, no target.
START = 1  # The decoder's input before the first token of an answer.
END = 2  # Ends a text.
UNKNOWN = 3  # A token that the vocabulary does not have; an input, but never a target.
SEPARATOR = 4  # Stands between the turns of a question.

# In a vocabulary of whole words, such as the Penn Treebank's; its PAD is the same.
WORD_END = 1  # Ends a line, and is read before the first one.
WORD_UNKNOWN = 2  # A word that the vocabulary does not have.

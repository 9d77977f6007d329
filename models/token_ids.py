"""The ids of special tokens that the text models take unless their caller passes others.

This is the only place in the zoo with such numbers. A vocabulary with other ids passes its own to
`seq2seq`, `answering`, `rnn_language_model` and `decode`.
"""

from __future__ import annotations

PADDING_ID = 0  # Fills a row behind its last token; no input, no target.
START_ID = 1  # The decoder's input before the first token of an answer.
UNKNOWN_ID = 3  # A word that is not in the vocabulary; an input, but never a target.

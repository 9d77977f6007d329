"""The ids of the special tokens of every text: nothing else may take these numbers."""

from __future__ import annotations

PAD = 0  # Fills a row behind its last token; no input, no target.
START = 1  # The decoder's input before the first token of an answer.
END = 2  # Ends a text.
UNKNOWN = 3  # A token that the vocabulary does not have; an input, but never a target.
SEPARATOR = 4  # Stands between the turns of a question.

"""Small dialogues in English and Chinese that the project generates from patterns of its own."""

from towers.data.samples.conversations.generation import conversations, labelled_dialogues
from towers.data.samples.conversations.patterns import read_patterns

__all__ = ["conversations", "labelled_dialogues", "read_patterns"]

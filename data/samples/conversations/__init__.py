"""Small dialogues in English and Chinese that the project generates from its own patterns."""

from data.samples.conversations.combinations import dialogues, examples, labelled_dialogues

__all__ = ["dialogues", "examples", "labelled_dialogues"]

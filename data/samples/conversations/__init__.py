"""Small dialogues in English and Chinese that the project generates from its own patterns."""

from towers.data.samples.conversations.combinations import (
    conversations,
    dialogues,
    labelled_dialogues,
)

__all__ = ["conversations", "dialogues", "labelled_dialogues"]

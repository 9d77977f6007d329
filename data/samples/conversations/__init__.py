"""Small dialogues in English and Chinese that the project generates from patterns of its own."""

from towers.data.samples.conversations.generation import conversations as conversations
from towers.data.samples.conversations.generation import labelled_dialogues as labelled_dialogues
from towers.data.samples.conversations.patterns import read_patterns as read_patterns

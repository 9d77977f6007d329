"""Files of dialogues in several formats, and the pairs of turns that a model learns from."""

from towers.data.dialogues.pairing import PAIRINGS, pair_turns, unpaired_turns
from towers.data.dialogues.reading import KINDS, read_dialogues
from towers.data.dialogues.report import ReadingReport

__all__ = [
    "KINDS",
    "PAIRINGS",
    "ReadingReport",
    "pair_turns",
    "read_dialogues",
    "unpaired_turns",
]

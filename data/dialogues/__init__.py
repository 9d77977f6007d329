"""Files of dialogues in several formats, and the pairs of turns that a model learns from."""

from towers.data.dialogues.mending import mendings
from towers.data.dialogues.pairing import PAIRINGS, pair_turns
from towers.data.dialogues.reading import KINDS, read_dialogues
from towers.data.dialogues.report import ReadingReport
from towers.data.dialogues.weights import WeightedPath, files_once, repeated, weighted_paths

__all__ = [
    "KINDS",
    "PAIRINGS",
    "ReadingReport",
    "WeightedPath",
    "files_once",
    "mendings",
    "pair_turns",
    "read_dialogues",
    "repeated",
    "weighted_paths",
]

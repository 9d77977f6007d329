"""Readers of files as the world has them: dialogues in several formats, and texts."""

from towers.data.reading.dialogues import KINDS, read_dialogues
from towers.data.reading.mending import mendings
from towers.data.reading.pairing import PAIRINGS, pair_turns
from towers.data.reading.report import ReadingReport
from towers.data.reading.weights import WeightedPath, files_once, repeated, weighted_paths

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

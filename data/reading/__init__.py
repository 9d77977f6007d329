"""Readers of files as the world has them: dialogues in several formats, and texts."""

from towers.data.reading.dialogues import KINDS, read_dialogues
from towers.data.reading.mending import mendings
from towers.data.reading.report import ReadingReport
from towers.data.reading.weights import WeightedPath, files_once, repeated, weighted_paths

__all__ = [
    "KINDS",
    "ReadingReport",
    "WeightedPath",
    "files_once",
    "mendings",
    "read_dialogues",
    "repeated",
    "weighted_paths",
]

"""Readers of files as the world has them: dialogues in several formats, and texts."""

from towers.data.reading.dialogues import KINDS, file_parts, read_dialogues
from towers.data.reading.layout import Layout
from towers.data.reading.mending import mendings
from towers.data.reading.paired import answers_beside
from towers.data.reading.report import ReadingReport
from towers.data.reading.weights import WeightedPath, repeated, weighted_paths

__all__ = [
    "KINDS",
    "Layout",
    "ReadingReport",
    "WeightedPath",
    "answers_beside",
    "file_parts",
    "mendings",
    "read_dialogues",
    "repeated",
    "weighted_paths",
]

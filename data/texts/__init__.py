"""Texts of any size: files of several formats, prepared once into memory-mapped ids."""

from towers.data.texts.line_codec import LineCodec
from towers.data.texts.prepare import prepare_texts
from towers.data.texts.settings import TextCorpusSettings
from towers.data.texts.text_corpus import PARTS, TextCorpus

__all__ = ["PARTS", "LineCodec", "TextCorpus", "TextCorpusSettings", "prepare_texts"]

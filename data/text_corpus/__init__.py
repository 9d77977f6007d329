"""Texts of any size: files of several formats, prepared once into memory-mapped ids."""

from towers.data.text_corpus.line_codec import LineCodec
from towers.data.text_corpus.prepare import prepare_texts
from towers.data.text_corpus.settings import TextCorpusSettings
from towers.data.text_corpus.text_corpus import PARTS, TextCorpus

__all__ = ["PARTS", "LineCodec", "TextCorpus", "TextCorpusSettings", "prepare_texts"]

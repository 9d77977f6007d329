"""Dialogues and texts of any size as ids on the disk: prepared once, memory-mapped ever after."""

from towers.data.prepared.corpus import TextCorpus
from towers.data.prepared.dialogue_corpus import DialogueCorpus
from towers.data.prepared.dialogues import prepare_dialogues, prepare_files
from towers.data.prepared.digests import digest_of
from towers.data.prepared.preparation import DialoguePreparation, TextPreparation
from towers.data.prepared.texts import prepare_texts, prepare_words

__all__ = [
    "DialogueCorpus",
    "DialoguePreparation",
    "TextCorpus",
    "TextPreparation",
    "digest_of",
    "prepare_dialogues",
    "prepare_files",
    "prepare_texts",
    "prepare_words",
]

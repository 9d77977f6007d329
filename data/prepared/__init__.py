"""Dialogues and texts of any size as ids on the disk: prepared once, memory-mapped ever after."""

from towers.data.prepared.corpus import TextCorpus as TextCorpus
from towers.data.prepared.dialogue_corpus import DialogueCorpus as DialogueCorpus
from towers.data.prepared.dialogues import prepare_dialogues as prepare_dialogues
from towers.data.prepared.dialogues import prepare_files as prepare_files
from towers.data.prepared.digests import digest_of as digest_of
from towers.data.prepared.preparation import DialoguePreparation as DialoguePreparation
from towers.data.prepared.preparation import TextPreparation as TextPreparation
from towers.data.prepared.texts import prepare_texts as prepare_texts
from towers.data.prepared.texts import prepare_words as prepare_words

"""Learning the vocabulary of a text from a sample of its training passages."""

from __future__ import annotations

import collections
import dataclasses
import math
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from towers.data.prepared.chunks import Chunk, in_chunks
from towers.data.prepared.passages import TRAIN
from towers.data.prepared.preparation import TextPreparation
from towers.data.prepared.processes import tokenise
from towers.data.text import (
    SPECIALS,
    SUBWORD_FILE,
    TextCodec,
    build_vocabulary,
    build_words,
    train_subwords,
)
from towers.ground.durable import make_folder

SAMPLE_CHARACTERS = 8_000_000  # A shorter text is counted whole; of a longer one at least half.
SUBWORD_CHARACTERS = 2_000_000  # SentencePiece learns from one core; this takes half a minute.


def learn_codec(
    passages: Iterator[Chunk], settings: TextPreparation, folder: Path, processes: int
) -> bool:
    """Writes the codec that is learnt from the passages into a folder.

    The sample has every n-th training passage, from everywhere in the text. Of a text as it is
    written, all words are counted.

    Args:
        passages: of all parts.
        settings: how the text becomes ids.
        folder: for the codec.
        processes: number of processes that tokenise.

    Returns:
        Whether there is a training passage; without one there is no codec.

    Raises:
        ValueError: the settings have no tokenizer.
    """
    shutil.rmtree(folder, ignore_errors=True)
    make_folder(folder)
    text = settings.text
    sample = _sampled(passages, math.inf if text.as_written else SAMPLE_CHARACTERS)
    if not sample:
        return False
    if text.learns_subwords:
        lines = (line for passage in _thinned(sample, SUBWORD_CHARACTERS) for line in passage)
        model = folder / SUBWORD_FILE
        size = settings.vocabulary_size - len(SPECIALS)
        train_subwords(filter(None, map(text.normalise, lines)), size, model)
        text = dataclasses.replace(text, subword_model=str(model))
    counts: collections.Counter[str] = collections.Counter()
    chunks = in_chunks(Chunk(lines, []) for lines in sample)
    for chunk in tokenise((chunk.texts for chunk in chunks), text, processes):
        uses = np.bincount(chunk.places, minlength=len(chunk.table)).tolist()
        counts.update(dict(zip(chunk.table, uses, strict=True)))
    build = build_words if text.as_written else build_vocabulary
    TextCodec(text, build(counts, settings.vocabulary_size)).save(folder)
    return True


def _sampled(passages: Iterator[Chunk], most: float) -> list[list[str]]:
    """Returns every training passage or, of more characters, every n-th; at least half of them."""
    kept: list[list[str]] = []
    stride, number, num_characters = 1, 0, 0
    for passage in passages:
        if passage.marks[0] != TRAIN:
            continue
        if number % stride == 0:
            kept.append(passage.texts)
            num_characters += sum(map(len, passage.texts))
            if num_characters > most:
                kept, stride = kept[::2], stride * 2
                num_characters = sum(len(line) for lines in kept for line in lines)
        number += 1
    return kept


def _thinned(sample: list[list[str]], most: int) -> list[list[str]]:
    num_characters = sum(len(line) for lines in sample for line in lines)
    return sample[:: max(1, -(-num_characters // most))]

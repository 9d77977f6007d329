"""Learning a vocabulary from a sample: of a text all of it, of dialogues the subwords."""

from __future__ import annotations

import collections
import dataclasses
import itertools
import math
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

import numpy as np

from towers.data.prepared.chunks import Chunk, in_chunks
from towers.data.prepared.passages import ENDS, TRAIN
from towers.data.prepared.preparation import Preparation, TextPreparation
from towers.data.prepared.processes import tokenise
from towers.data.reading.texts import DOCUMENT_END
from towers.data.text import (
    SPECIALS,
    SUBWORD_FILE,
    TextCodec,
    TextSettings,
    learn_vocabulary,
    train_subwords,
)
from towers.ground.durable import make_folder

Item = TypeVar("Item")
SAMPLE_CHARACTERS = 8_000_000  # A shorter text is counted whole; of a longer one at least half.
SUBWORD_CHARACTERS = 2_000_000  # SentencePiece learns from one core; this takes half a minute.


def learn_codec(
    passages: Iterator[Chunk], settings: TextPreparation, folder: Path, processes: int | None
) -> bool:
    """Writes the codec that is learnt from the training passages; returns whether there is one.

    The sample has every n-th training passage, from everywhere in the text. In a text as it
    is written, all words are counted.
    """
    shutil.rmtree(folder, ignore_errors=True)
    make_folder(folder)
    text = settings.text
    if text.has_alphabet and not text.learns_subwords:
        TextCodec(text, learn_vocabulary(text, {}, settings.vocabulary_size)).save(folder)
        return True
    trained = (passage.texts for passage in passages if passage.marks[0] % ENDS == TRAIN)
    most = math.inf if text.has_whole_words else SAMPLE_CHARACTERS
    sample = evenly_spaced(trained, most, _characters)
    if not sample:
        return False
    if text.learns_subwords:
        some = sample[:: max(1, -(-sum(map(_characters, sample)) // SUBWORD_CHARACTERS))]
        lines = itertools.chain.from_iterable(some)
        text = learn_subwords(lines, settings, folder / SUBWORD_FILE)
    counts: collections.Counter[str] = collections.Counter()
    chunks = in_chunks(Chunk(lines, []) for lines in sample)
    for chunk in tokenise((chunk.texts for chunk in chunks), text, processes):
        uses = np.bincount(chunk.indices, minlength=len(chunk.table)).tolist()
        counts.update(dict(zip(chunk.table, uses, strict=True)))
    vocabulary = learn_vocabulary(
        text, counts, settings.vocabulary_size, min_count=settings.min_count
    )
    TextCodec(text, vocabulary).save(folder)
    return True


def _characters(lines: Sequence[str]) -> int:
    return sum(map(len, lines))


def learn_subwords(texts: Iterable[str], settings: Preparation, model: Path) -> TextSettings:
    """Writes a subword model that is learnt from some texts; returns the settings that name it."""
    text = settings.text
    size = settings.vocabulary_size - len(SPECIALS)
    lines = (line for line in texts if line != DOCUMENT_END)
    train_subwords(filter(None, map(text.normalise, lines)), size, model, exact=text.as_written)
    return dataclasses.replace(text, subword_model=str(model))


def evenly_spaced(
    items: Iterable[Item], most: float, size: Callable[[Item], int] = lambda _: 1
) -> list[Item]:
    """Returns every item or, of those larger together than `most`, every n-th.

    The sample is at least about half as large.
    """
    kept: list[Item] = []
    stride, total = 1, 0
    for number, item in enumerate(items):
        if number % stride == 0:
            kept.append(item)
            total += size(item)
            if total > most:
                kept, stride = kept[::2], stride * 2
                total = sum(map(size, kept))
    return kept

"""Why a chatbot said an answer: the answers that were likely, and what each word looked at."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from towers.data.text import SPECIALS, TextCodec, Vocabulary
from towers.ground.special_ids import SEPARATOR, UNKNOWN
from towers.models.answering import decoder_inputs
from towers.scripts.chatbot.answerer import Answer, Chatbot
from towers.scripts.chatbot.commands import search_options
from towers.scripts.shown import table
from towers.scripts.training.options import DecodingOptions
from towers.scripts.training.saved_run import OpenModel

SHOWN_SPECIALS = {SEPARATOR: "/", UNKNOWN: "<unknown>"}
NUM_LIKELY = 5
NUM_LOOKS = 3
MakeAnswerer = Callable[[DecodingOptions], Chatbot]


class Look(NamedTuple):
    """Where a word of an answer looked: words of the question with their fractions, most first."""

    word: str
    words: list[tuple[str, float]]


def explain(
    opened: OpenModel,
    make_answerer: MakeAnswerer,
    options: DecodingOptions,
    turns: Sequence[str],
    said: Answer,
) -> list[str]:
    """Returns lines about an answer: the likeliest ones, and what each of its words looked at."""
    width = max(NUM_LIKELY, options.beam)
    answerer = make_answerer(search_options(options, width, width))
    likely = answerer.answer([list(turns)])[0]
    score = (
        "mutual information" if options.mmi else ("log probability divided by the length penalty")
    )
    lines = [*likely_lines(likely, said, score), "What each word of the answer attended to:"]
    return [*lines, *look_lines(find_looks(opened, turns, said))]


def likely_lines(likely: Sequence[Answer], said: Answer, score: str) -> list[str]:
    """Returns the answers with their scores, given the score's name; what was said is marked."""
    found = [answer for answer in likely if np.isfinite(answer.score)]
    lines = [f"The likeliest answers, by {score}:"]
    lines += [
        f"{answer.score:10.3f}  {answer.text or '(nothing)'}"
        f"{'   <- said' if answer.tokens == said.tokens else ''}"
        for answer in found
    ]
    if all(answer.tokens != said.tokens for answer in found):
        lines.append(f"{'':10}  {said.text or '(nothing)'}   <- said, less likely than these")
    return lines


def find_looks(opened: OpenModel, turns: Sequence[str], said: Answer) -> list[Look]:
    """Returns for each word of an answer the words of the question that it attended to most.

    The model reads the answer once more, and its attention weights are kept. The weights of the
    ids that spell a word of the question are added, those of a word of the answer averaged.
    """
    vocabulary = opened.text.vocabulary
    asked, copied = opened.text.read_question(turns, opened.recipe.fields.max_question_length)
    ids = vocabulary.ids_of(said.tokens, copied)
    if not ids:
        return []
    inputs = decoder_inputs(tf.constant([ids]))
    weights = opened.model.attention_weights(tf.constant([asked]), inputs)[0].numpy()
    question = words_of(vocabulary, asked, copied)
    of_words = np.stack([weights[:, word.indices].sum(1) for word in question], 1)
    return [
        Look(word.text, most([one.text for one in question], of_words[word.indices].mean(0)))
        for word in words_of(vocabulary, ids, copied)
    ]


def most(words: Sequence[str], fractions: np.ndarray) -> list[tuple[str, float]]:
    """Returns the words with the largest fractions, at most `NUM_LOOKS`, the largest first."""
    order = np.argsort(-fractions, kind="stable")[:NUM_LOOKS]
    return [(words[index], float(fractions[index])) for index in order]


def look_lines(looks: Sequence[Look]) -> list[str]:
    """Returns a table with a row for each word of an answer."""
    if not looks:
        return ["  (it has no words)"]
    cells = [
        [look.word, *(f"{word} {fraction:.0%}" for word, fraction in look.words)] for look in looks
    ]
    return [f"  {line}" for line in table(cells, between="   ")]


class Word(NamedTuple):
    """A word, whole or spelled.

    Attributes:
        text: as the vocabulary spells it; `/` between two turns.
        indices: of its ids in the text's ids.
        is_known: whether the vocabulary has it as a whole.
    """

    text: str
    indices: list[int]
    is_known: bool


def words_of(vocabulary: Vocabulary, ids: Sequence[int], copied: Sequence[str] = ()) -> list[Word]:
    """Returns the words of some ids; characters that continue a word belong to it.

    The copies of the vocabulary stand for the copied words.
    """
    words: list[Word] = []
    for index, unit_id in enumerate(ids):
        if unit_id in vocabulary.copies:
            words.append(Word(copied[unit_id - vocabulary.copies.start], [index], False))
            continue
        if unit_id < len(SPECIALS):
            text = SHOWN_SPECIALS.get(unit_id, SPECIALS[unit_id])
            words.append(Word(text, [index], unit_id != UNKNOWN))
            continue
        unit = vocabulary.unit(unit_id)
        if unit.continues and words:
            begun = words.pop()
            words.append(Word(begun.text + unit.text, [*begun.indices, index], False))
        else:
            words.append(Word(unit.text, [index], not unit.continues))
    return words


def unknown_fraction(text: TextCodec, message: str) -> float:
    """Returns the fraction of a message's words that are unknown; marks and blanks are no words."""
    words = words_of(text.vocabulary, *text.encode_question([message]))
    spoken = [word for word in words if any(map(str.isalnum, word.text))]
    return sum(not word.is_known for word in spoken) / len(spoken) if spoken else 0.0

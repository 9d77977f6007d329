"""The words behind the ids of a text, to show them and to know which the vocabulary lacks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from towers.data.text import SPECIALS, TextCodec, Vocabulary
from towers.ground.special_ids import SEPARATOR, UNKNOWN

SHOWN_SPECIALS = {SEPARATOR: "/", UNKNOWN: "<unknown>"}


class Word(NamedTuple):
    """A word, whole or spelled.

    Attributes:
        text: as the vocabulary spells it; `/` between two turns.
        places: of its ids in the text's ids.
        is_known: whether the vocabulary has it as a whole.
    """

    text: str
    places: list[int]
    is_known: bool


def words_of(vocabulary: Vocabulary, ids: Sequence[int], copied: Sequence[str] = ()) -> list[Word]:
    """Returns the words of some ids; characters that continue a word belong to it.

    Args:
        vocabulary: of the ids.
        ids: of a question or an answer.
        copied: the words that the copies of the vocabulary stand for.
    """
    words: list[Word] = []
    for place, unit_id in enumerate(ids):
        if unit_id in vocabulary.copies:
            words.append(Word(copied[unit_id - vocabulary.copies.start], [place], False))
            continue
        if unit_id < len(SPECIALS):
            text = SHOWN_SPECIALS.get(unit_id, SPECIALS[unit_id])
            words.append(Word(text, [place], unit_id != UNKNOWN))
            continue
        unit = vocabulary.unit(unit_id)
        if unit.continues and words:
            begun = words.pop()
            words.append(Word(begun.text + unit.text, [*begun.places, place], False))
        else:
            words.append(Word(unit.text, [place], not unit.continues))
    return words


def unknown_share(text: TextCodec, message: str) -> float:
    """Returns the share of a message's words that are unknown; marks and blanks are no words."""
    words = words_of(text.vocabulary, *text.encode_question([message]))
    spoken = [word for word in words if any(map(str.isalnum, word.text))]
    return sum(not word.is_known for word in spoken) / len(spoken) if spoken else 0.0

"""The embedded dialogues of a language, in a training part and a held-out part.

A dialogue is a *phrasing*, its turns with gaps, filled with a *content*. The held-out part
consists of combinations: for about every third content, one phrasing is kept out of the training
part, which has the same content in the other phrasings, and the same phrasing with other contents.
So the training part has no dialogue with a held-out question. A model can still answer it if it
has learned content and phrasing separately: all phrasings of a kind ask for the same thing.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Sequence

from towers.data.samples.conversations.contents import Content
from towers.data.samples.conversations.patterns import Kind, read_patterns

PARTS = ("train", "held_out")
HELD_OUT_EVERY = 3
REPEAT_EVERY = 20
NUM_OPENINGS = 5


def conversations(language: str, part: str) -> list[list[str]]:
    """Returns the dialogues of a part; every twentieth occurs again after an unrelated dialogue.

    So a chatbot learns to use earlier turns where a question needs them, and to ignore them
    otherwise.

    Args:
        language: `en` or `zh`.
        part: `train` or `held_out`.
    """
    single = dialogues(language, part)
    shuffled = sorted(single, key=lambda turns: digest("/".join(turns)))
    pairs = list(itertools.pairwise(shuffled))[::REPEAT_EVERY]
    return [*single, *([*before, *turns] for before, turns in pairs)]


def dialogues(language: str, part: str) -> list[list[str]]:
    """Returns the dialogues of a part, each a list of turns: question, answer, and so on.

    Args:
        language: `en` or `zh`.
        part: `train` or `held_out`.
    """
    return [turns for _, turns in labelled_dialogues(language, part)]


def labelled_dialogues(language: str, part: str) -> list[tuple[str, list[str]]]:
    """Returns the dialogues, each with the name of its kind; arguments as in `dialogues`."""
    if part not in PARTS:
        raise ValueError(f"part must be one of {', '.join(PARTS)}. Received {part!r}.")
    patterns = read_patterns(language)
    return [
        (kind.name, fill(opening, phrasing, content, language))
        for kind in patterns.kinds
        for content_number, content in enumerate(kind.contents)
        for phrasing_number, phrasing in enumerate(kind.phrasings)
        for opening_number, opening in enumerate(patterns.openings)
        if part == part_of(kind, content_number, phrasing_number, opening_number)
    ]


def fill(opening: str, phrasing: Sequence[str], content: Content, language: str) -> list[str]:
    """Returns the turns with their gaps filled, an opening before the first."""
    first, *others = phrasing
    turns = [f"{opening} {first}".strip(), *others]
    if language == "zh":  # The patterns have blanks around their gaps; Chinese text has none.
        turns = [turn.replace(" ", "") for turn in turns]
    return [turn.format(**content) for turn in turns]


def part_of(kind: Kind, content: int, phrasing: int, opening: int) -> str | None:
    """Returns the part of a combination, None for all but one opening of a held-out one."""
    if not is_held_out(kind, content, phrasing):
        return "train"
    return "held_out" if opening == content % NUM_OPENINGS else None


def is_held_out(kind: Kind, content: int, phrasing: int) -> bool:
    """Returns whether a combination is held out; a hash decides, the same way each time."""
    quotient, chosen = divmod(digest(f"{kind.name}/{content}"), len(kind.phrasings))
    return kind.held_out and quotient % HELD_OUT_EVERY == 0 and phrasing == chosen


def digest(text: str) -> int:
    """Returns the hash of a text, an unsigned integer of 64 bits."""
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")

"""The embedded dialogues of a language, in a training part and a held-out part.

A dialogue is a *phrasing*, its sentences with gaps, filled with a *content*. What is held out are
combinations: of about every third content one phrasing is kept from the training, where the same
content occurs in the other phrasings, and the same phrasing with other contents. So a held-out
question was never seen, in no dialogue, and can still be answered by who understands both of its
halves: the phrasings of a kind ask for the same thing in other words.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Sequence

import towers.data.samples.conversations.chinese as chinese
import towers.data.samples.conversations.english as english
from towers.data.samples.conversations.kinds import Kind

PARTS = ("train", "held_out")
LANGUAGES = {"en": english, "zh": chinese}
HELD_OUT_EVERY = 3
AGAIN_EVERY = 20
NUM_OPENINGS = 5


def dialogues(language: str, part: str) -> list[list[str]]:
    """Returns the dialogues of a part, each a list of turns: question, answer, and so on.

    Args:
        language: `en` or `zh`.
        part: `train` or `held_out`.
    """
    return [turns for _, turns in labelled_dialogues(language, part)]


def conversations(language: str, part: str) -> list[list[str]]:
    """Returns the dialogues of a part; every twentieth comes again behind one that is not about it.

    So a chatbot learns to use what was said before where a question needs it, and only there.
    """
    alone = dialogues(language, part)
    shuffled = sorted(alone, key=lambda turns: digest("/".join(turns)))
    pairs = list(itertools.pairwise(shuffled))[::AGAIN_EVERY]
    return [*alone, *([*before, *turns] for before, turns in pairs)]


def labelled_dialogues(language: str, part: str) -> list[tuple[str, list[str]]]:
    """Returns the dialogues, each with the name of its kind; arguments as in `dialogues`."""
    if part not in PARTS:
        raise ValueError(f"part must be one of {', '.join(PARTS)}. Received {part!r}.")
    if language not in LANGUAGES:
        raise ValueError(
            f"There are embedded dialogues in {', '.join(LANGUAGES)}. Received {language!r}."
        )
    module = LANGUAGES[language]
    return [
        (kind.name, fill(opening, phrasing, content, language))
        for kind in module.kinds()
        for content_number, content in enumerate(kind.contents)
        for phrasing_number, phrasing in enumerate(kind.phrasings)
        for opening_number, opening in enumerate(module.OPENINGS)
        if part == part_of(kind, content_number, phrasing_number, opening_number)
    ]


def fill(
    opening: str, phrasing: Sequence[str], content: dict[str, str], language: str
) -> list[str]:
    """Returns the turns with their gaps filled, an opening before the first."""
    first, *others = phrasing
    turns = [f"{opening} {first}".strip(), *others]
    if language == "zh":  # The patterns have blanks around their gaps, the text has none.
        turns = [turn.replace(" ", "") for turn in turns]
    return [turn.format(**content) for turn in turns]


def part_of(kind: Kind, content: int, phrasing: int, opening: int) -> str | None:
    """Returns the part of a combination; of what is held out, one opening is enough."""
    if not is_held_out(kind, content, phrasing):
        return "train"
    return "held_out" if opening == content % NUM_OPENINGS else None


def is_held_out(kind: Kind, content: int, phrasing: int) -> bool:
    """Returns whether a combination is kept from the training: a draw that never changes."""
    turn, chosen = divmod(digest(f"{kind.name}/{content}"), len(kind.phrasings))
    return kind.held_out and turn % HELD_OUT_EVERY == 0 and phrasing == chosen


def digest(text: str) -> int:
    """Returns a number of 64 bits that stands for a text."""
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")

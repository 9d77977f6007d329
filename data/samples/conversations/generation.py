"""The embedded dialogues of a language, in a training part and a held-out part.

A dialogue is a *phrasing*, its turns with gaps, filled with a *content*. Most dialogues occur
twice: as they are, and without the marks at the ends of the questions or after an opening.

The held-out part consists of combinations: for about every third content, one phrasing is kept out
of the training part, which has the same content in the other phrasings, and the same phrasing with
other contents. So the training part has no dialogue with a held-out question. A model can still
answer it if it has learned content and phrasing separately: all phrasings of a kind ask for the
same thing. Where contents have few uses, such as made-up names, about every tenth content is held
out: the training part has no dialogue with this name.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from towers.data.samples.conversations.contents import Content, spreading_step
from towers.data.samples.conversations.patterns import Kind, read_patterns
from towers.ground.arguments import check_choice

PARTS = ("train", "held_out")
HELD_OUT_EVERY = 3
HELD_OUT_CONTENT_EVERY = 10
REPEAT_EVERY = 20
INTERRUPT_EVERY = 3
# Chinese patterns have a blank around their gaps, which Chinese text has not; two stand for one.
BLANK = re.compile(" ( ?)")
MARKS = ".?!。？！"  # noqa: RUF001 - Chinese has its own punctuation.


class Variant(NamedTuple):
    """How a dialogue begins, and whether its questions keep the marks at their ends."""

    opening: str = ""
    marked: bool = True


def conversations(language: str, part: str) -> list[list[str]]:
    """Returns the dialogues of a part; some occur again with unrelated ones.

    So a chatbot learns to use earlier turns where a question needs them, and to ignore them
    otherwise. Every twentieth dialogue occurs again after two others, but for those of kinds that
    are `alone`, or whose contents have one use. Every third in which something is told and asked
    for occurs again with an exchange between, every sixth with two between, every sixth after two,
    and each that is `alone` after one.
    """
    labelled = labelled_dialogues(language, part)
    kinds = {one.name: one for one in read_patterns(language).kinds}
    # By chance: dialogues of a kind lie beside each other.
    shuffled = sorted(labelled, key=lambda one: digest("/".join(one[1])))
    found = [(kinds[name], turns) for name, turns in shuffled]
    again = [turns for kind, turns in found if not kind.alone and kind.uses != 1]
    told = [turns for kind, turns in found if kind.telling and len(turns) > 2]
    alone = [turns for kind, turns in found if kind.alone]
    others = [turns for kind, turns in found if not (kind.alone or kind.uses or kind.telling)]
    exchanges = itertools.cycle(turns for turns in others if len(turns) == 2)
    starts = range(0, len(again) - 2, REPEAT_EVERY)
    return [
        *(turns for _, turns in labelled),
        *(list(itertools.chain(*again[start : start + 3])) for start in starts),
        *([*turns[:2], *next(exchanges), *turns[2:]] for turns in told[::INTERRUPT_EVERY]),
        *(
            [*turns[:2], *next(exchanges), *next(exchanges), *turns[2:]]
            for turns in told[1 :: 2 * INTERRUPT_EVERY]
        ),
        *([*next(exchanges), *next(exchanges), *turns] for turns in told[2 :: 2 * INTERRUPT_EVERY]),
        *([*next(exchanges), *turns] for turns in alone),
    ]


def labelled_dialogues(language: str, part: str) -> list[tuple[str, list[str]]]:
    """Returns the dialogues of a part, each a list of turns, with the name of its kind.

    Alternatives may make a question that another phrasing asks too. It is held out once, or is in
    the training part, always with the answer that it had first.
    """
    check_choice("part", part, PARTS)
    held_out: dict[tuple[str, ...], tuple[str, list[str]]] = {}
    for name, questions, turns in _dialogues(language, "held_out"):
        held_out.setdefault(questions, (name, turns))
    if part == "held_out":
        return list(held_out.values())
    first: dict[str, str] = {}
    return [
        (name, turns)
        for name, questions, turns in _dialogues(language, part)
        if questions not in held_out and first.setdefault(questions[0], turns[1]) == turns[1]
    ]


def _dialogues(language: str, part: str) -> list[tuple[str, tuple[str, ...], list[str]]]:
    """Returns (kind, questions, turns) of a part; questions without opening, capitals and marks."""
    patterns = read_patterns(language)
    found = []
    for kind in patterns.kinds:
        for content in range(len(kind.contents)):
            for phrasing, variant in combinations(kind, content, part, patterns.openings):
                turns = fill(variant, kind.phrasings[phrasing], kind.contents[content], language)
                bare = [turns[0].removeprefix(variant.opening).lstrip(), *turns[2::2]]
                asked = tuple(one.lower().rstrip(MARKS) or one for one in bare)
                found.append((kind.name, asked, turns))
    return found


def combinations(
    kind: Kind, content: int, part: str, openings: Sequence[str]
) -> Iterator[tuple[int, Variant]]:
    """Yields (phrasing, variant) of the dialogues with a content."""
    if kind.uses is not None:
        yield from few_combinations(kind, content, kind.uses, part, openings)
        return
    for phrasing in range(len(kind.phrasings)):
        variants = all_variants(openings, f"{kind.name}/{content}/{phrasing}")[: kind.variants]
        if not is_held_out(kind, content, phrasing):
            yield from ((phrasing, one) for one in variants if part == "train")
        elif part == "held_out":
            yield phrasing, variants[content % len(variants)]


def few_combinations(
    kind: Kind, content: int, uses: int, part: str, openings: Sequence[str]
) -> Iterator[tuple[int, Variant]]:
    """Yields as many combinations of a content as it has uses, or one if it is held out."""
    # By chance: turns in a fixed order would leave a phrasing, or a part of made-up words, to the
    # held-out contents alone.
    chosen = digest(f"{kind.name}/{content}/part") % HELD_OUT_CONTENT_EVERY == 0
    held_out = kind.held_out and chosen
    if held_out != (part == "held_out"):
        return
    first = places_by_chance(kind.name, len(kind.contents))[content] * uses
    for number in range(first, first + (1 if held_out else uses)):
        key = f"{kind.name}/{content}/{number}"
        variants = all_variants(openings, key)
        # So each turn of the phrasings is said with about as many contents.
        phrasing = number * spreading_step(len(kind.phrasings)) % len(kind.phrasings)
        yield phrasing, variants[digest(key) % len(variants)]


@functools.cache
def places_by_chance(name: str, count: int) -> dict[int, int]:
    """Returns the place of each of a kind's contents in an order by chance."""
    order = sorted(range(count), key=lambda content: digest(f"{name}/{content}"))
    return {content: place for place, content in enumerate(order)}


def all_variants(openings: Sequence[str], key: str) -> list[Variant]:
    """Returns the variants of a dialogue; the key decides on the opening and on their order."""
    _, *spoken = openings
    choice, swapped = divmod(digest(f"{key}/variant"), 2)
    others = [Variant(marked=False), Variant(spoken[choice % len(spoken)])]
    return [Variant(), *(others[::-1] if swapped else others)]


def fill(variant: Variant, phrasing: Sequence[str], content: Content, language: str) -> list[str]:
    """Returns the turns with their gaps filled, an opening before the first."""
    turns = [
        turn if number % 2 or variant.marked else turn.rstrip(MARKS) or turn
        for number, turn in enumerate(phrasing)
    ]
    turns[0] = f"{variant.opening} {turns[0]}".strip()
    if language == "zh":
        turns = [BLANK.sub(r"\1", turn) for turn in turns]
    return [turn.format(**content) for turn in turns]


def is_held_out(kind: Kind, content: int, phrasing: int) -> bool:
    """Returns whether a combination is held out; a hash decides, the same way each time."""
    quotient, chosen = divmod(digest(f"{kind.name}/{content}"), len(kind.phrasings))
    return kind.held_out and quotient % HELD_OUT_EVERY == 0 and phrasing == chosen


def digest(text: str) -> int:
    """Returns the hash of a text, an unsigned integer of 64 bits."""
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")

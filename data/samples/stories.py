"""Small stories that the project generates from its own patterns, one sentence a line.

A story tells of a hero who finds a thing and of a friend. Names, thing, colour and place come back
in later sentences, so that who reads them has to remember what was said some sentences before.
"""

from __future__ import annotations

from typing import Any

import numpy as np

PARTS = {"train": (2400, 1), "valid": (240, 2), "test": (240, 3)}  # Stories and seed.
GIRLS = ["anna", "clara", "emma", "julia"]
BOYS = ["adam", "ben", "carl", "david"]
PRONOUNS = {**dict.fromkeys(GIRLS, ("she", "her")), **dict.fromkeys(BOYS, ("he", "his"))}
TIMES = ["one morning", "one evening", "on monday", "on sunday", "last summer", "last winter"]
PLACES = ["market", "river", "forest", "harbour", "garden", "school", "castle", "beach", "mill"]
COLOURS = ["red", "blue", "green", "yellow", "white", "black"]
THINGS = ["kite", "ball", "boat", "drum", "lamp", "coat", "flute", "clock", "basket", "bell"]
FEELINGS = ["happy", "surprised", "proud", "tired"]
SENTENCES = (
    (
        "{time} {hero} found a {colour} {thing} near the {place} .",
        "{time} {hero} bought a {colour} {thing} at the {place} .",
        "{time} an old man from the {place} gave {hero} a {colour} {thing} .",
    ),
    (
        '" what a fine {thing} ! " said {hero} .',
        "{hero} had never had a {thing} before .",
        "{he} liked the {thing} , for it was as {colour} as in {his} dreams .",
    ),
    (
        "{hero} took the {thing} home and showed it to {friend} .",
        "then {hero} met {friend} , who asked for the {thing} .",
        "{friend} saw the {colour} {thing} and wanted it .",
    ),
    (
        "so {hero} gave the {thing} to {friend} .",
        "but {hero} kept the {thing} , and {friend} went home .",
        "{hero} and {friend} played with the {thing} until night .",
    ),
    (
        "that day {hero} was {feeling} , and so was {friend} .",
        "{friend} was {feeling} and thanked {hero} .",
        "they were both {feeling} when they slept .",
    ),
)


def text(part: str) -> str:
    """Returns the stories of a part, the same each time.

    Args:
        part: `train`, `valid` or `test`.
    """
    if part not in PARTS:
        raise ValueError(f"part must be one of {', '.join(PARTS)}. Received {part!r}.")
    num_stories, seed = PARTS[part]
    # Uniform numbers are the one kind of draw whose stream is the same in every version.
    draws = np.random.Generator(np.random.Philox(key=seed)).random(
        (num_stories, 7 + len(SENTENCES))
    )
    return "".join(story(row) for row in draws.tolist())


def story(draws: list[float]) -> str:
    """Returns one story, its sentences in lines of their own.

    Args:
        draws: a number in [0, 1) for each choice.
    """
    filling, kinds = draws[:7], draws[7:]
    words = fill(filling)
    sentences = [chosen(forms, kind) for forms, kind in zip(SENTENCES, kinds, strict=True)]
    return "".join(sentence.format(**words) + "\n" for sentence in sentences)


def fill(draws: list[float]) -> dict[str, str]:
    """Returns what stands for each gap of the sentences."""
    names = (*GIRLS, *BOYS)
    hero = chosen(names, draws[0])
    friend = chosen([name for name in names if name != hero], draws[1])
    lists = {
        "time": TIMES,
        "place": PLACES,
        "colour": COLOURS,
        "thing": THINGS,
        "feeling": FEELINGS,
    }
    words = {
        gap: chosen(own, draw) for (gap, own), draw in zip(lists.items(), draws[2:], strict=True)
    }
    he, his = PRONOUNS[hero]
    return {**words, "hero": hero, "friend": friend, "he": he, "his": his}


def chosen(choices: Any, draw: float) -> Any:
    """Returns the choice that a number in [0, 1) stands for."""
    return choices[int(draw * len(choices))]

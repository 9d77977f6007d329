"""Small stories that the project generates from patterns of its own, one sentence a line.

In each story a hero finds a thing and meets a friend. Names, thing, colour and place occur again in
later sentences, so that a language model must remember earlier sentences to predict them.
"""

from __future__ import annotations

from typing import Any

from towers.ground.arguments import check_choice
from towers.ground.random_numbers import generator

# The number of stories, and the seed.
PARTS = {"train": (2400, 1), "validation": (240, 2), "test": (240, 3)}
GIRLS = ["anna", "clara", "emma", "julia"]
BOYS = ["adam", "ben", "carl", "david"]
PRONOUNS = {**dict.fromkeys(GIRLS, ("she", "her")), **dict.fromkeys(BOYS, ("he", "his"))}
TIMES = ["one morning", "one evening", "on monday", "on sunday", "last summer", "last winter"]
PLACES = ["market", "river", "forest", "harbour", "garden", "school", "castle", "beach", "mill"]
COLOURS = ["red", "blue", "green", "yellow", "white", "black"]
THINGS = ["kite", "ball", "boat", "drum", "lamp", "coat", "flute", "clock", "basket", "bell"]
FEELINGS = ["happy", "surprised", "proud", "tired"]
NUM_GAPS = 7  # Hero, friend, and a word from each list.
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
    """Returns the stories of train, validation or test, always the same."""
    check_choice("part", part, PARTS)
    num_stories, seed = PARTS[part]
    # Uniform numbers, since their stream is the same in every version of NumPy.
    uniforms = generator(seed).random((num_stories, NUM_GAPS + len(SENTENCES)))
    return "".join(story(row) for row in uniforms.tolist())


def story(uniforms: list[float]) -> str:
    """Returns one story, one sentence a line.

    It is chosen by numbers in [0, 1): the words, then the sentences.
    """
    words = choose_words(uniforms[:NUM_GAPS])
    choices = zip(SENTENCES, uniforms[NUM_GAPS:], strict=True)
    sentences = [chosen(variants, uniform) for variants, uniform in choices]
    return "".join(sentence.format(**words) + "\n" for sentence in sentences)


def choose_words(uniforms: list[float]) -> dict[str, str]:
    """Returns the word for each gap of the sentences."""
    names = (*GIRLS, *BOYS)
    hero = chosen(names, uniforms[0])
    friend = chosen([name for name in names if name != hero], uniforms[1])
    lists = {
        "time": TIMES,
        "place": PLACES,
        "colour": COLOURS,
        "thing": THINGS,
        "feeling": FEELINGS,
    }
    choices = zip(lists.items(), uniforms[2:], strict=True)
    words = {gap: chosen(words, uniform) for (gap, words), uniform in choices}
    he, his = PRONOUNS[hero]
    return {**words, "hero": hero, "friend": friend, "he": he, "his": his}


def chosen(choices: Any, uniform: float) -> Any:
    """Returns the choice that a number in [0, 1) selects."""
    return choices[int(uniform * len(choices))]

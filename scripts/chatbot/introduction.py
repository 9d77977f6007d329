"""What a chatbot was trained on: recorded with its run, and said when it is opened."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from towers.data.reading.weights import weighted_paths
from towers.data.samples.conversations import labelled_dialogues, read_patterns

NUM_SHOWN = 10
NUM_EXAMPLES = 4
WIDTH = 88


def about_data(
    paths: Sequence[Path] | None, language: str, num_pairs: int, context: int
) -> dict[str, Any]:
    """Returns what a run records: the number of pairs, how many earlier turns questions have, the
    files or kinds of dialogues.

    Without paths these are the embedded dialogues of a language.
    """
    about = {"pairs": num_pairs, "context": context, "evaluated": "validation"}
    if paths is None:
        return {**about, "kinds": [kind.name for kind in read_patterns(language).kinds]}
    return {**about, "files": [one.path.name for one in weighted_paths(paths)]}


def introduce(about: Mapping[str, Any]) -> str:
    """Returns a line about what a chatbot was trained on, as far as its run recorded it."""
    pairs = f"{about['pairs']:,} pairs of " if "pairs" in about else ""
    topics = topics_of(about)
    files = about.get("files", ())
    if files:
        alone = "" if about.get("context", 1) else " It answers each message by itself."
        return f"It was trained on {pairs}{_first(files)}.{alone}"
    if not topics:
        return f"It was trained on {pairs}the embedded dialogues."
    step = -(-len(topics) // NUM_SHOWN)  # Neighbours are alike: some from everywhere are shown.
    shown = topics[::step]
    more = f" and {len(topics) - len(shown)} more topics" if len(topics) > len(shown) else ""
    return f"It was trained on {pairs}embedded dialogues: {', '.join(shown)}{more}."


def list_topics(about: Mapping[str, Any]) -> list[str]:
    """Returns lines with what a chatbot can talk about, none if that is not known."""
    topics = topics_of(about)
    return textwrap.wrap(f"It can talk about: {', '.join(topics)}.", WIDTH) if topics else []


def topics_of(about: Mapping[str, Any]) -> list[str]:
    """Returns the kinds whose name is one word; the others are variations, such as more sums."""
    return [kind for kind in about.get("kinds", ()) if " " not in kind]


def example_questions(about: Mapping[str, Any], language: str) -> list[str]:
    """Returns a few held-out questions of different kinds; none without embedded dialogues."""
    kinds = about.get("kinds", ())
    if not kinds:
        return []
    openings = tuple(filter(None, read_patterns(language).openings))
    found = {
        kind: turns[0]
        for kind, turns in labelled_dialogues(language, "held_out")
        if kind in kinds and not turns[0].startswith(openings)
    }
    return list(found.values())[:: -(-len(found) // NUM_EXAMPLES)]


def _first(names: Sequence[str]) -> str:
    more = f" and {len(names) - NUM_SHOWN} more files" if len(names) > NUM_SHOWN else ""
    return ", ".join(names[:NUM_SHOWN]) + more

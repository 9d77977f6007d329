"""The pairs of question and answer in a dialogue."""

from __future__ import annotations

PAIRINGS = ("alternate", "sliding")


def pair_turns(
    num_turns: int, *, pairing: str = "alternate", context: int = 0
) -> list[tuple[int, int]]:
    """Returns (first turn of the question, turn of the answer) for each pair of a dialogue.

    The question is `turns[first:answer]`: up to `context` earlier turns, then the turn that is
    answered. `read_dialogues` yields an unusable turn as an empty string; the caller leaves out
    pairs whose answer, or whose turn before the answer, is empty.

    >>> pair_turns(5), pair_turns(3, pairing="sliding", context=1)
    ([(0, 1), (2, 3)], [(0, 1), (0, 2)])

    Args:
        num_turns: number of turns in the dialogue.
        pairing: alternate (turns 0 and 1, 2 and 3, ...; an odd last turn has no answer) or
            sliding (0 and 1, 1 and 2, ...: every turn answers the one before).
        context: maximum number of earlier turns before the turn that is answered.

    Raises:
        ValueError: the pairing is unknown or the context negative.
    """
    if context < 0:
        raise ValueError(f"context must be 0 or more turns. Received {context}.")
    last = num_turns - 1
    return [
        (max(0, question - context), question + 1) for question in range(0, last, stride(pairing))
    ]


def stride(pairing: str) -> int:
    """Returns the number of turns between a question and the next one."""
    if pairing not in PAIRINGS:
        raise ValueError(f"pairing must be one of {', '.join(PAIRINGS)}. Received {pairing!r}.")
    return 2 if pairing == "alternate" else 1

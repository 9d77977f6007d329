"""Which turns of a dialogue answer which."""

from __future__ import annotations

PAIRINGS = ("alternate", "sliding")


def pair_turns(
    num_turns: int, *, pairing: str = "alternate", context: int = 0
) -> list[tuple[int, int]]:
    """Returns (first turn of the question, turn of the answer) for each pair of a dialogue.

    The question is `turns[first:answer]`: up to `context` earlier turns, then the turn that is
    answered. A turn that `read_dialogues` could not use is an empty string that holds its place,
    so pairs whose answer, or whose turn before it, is empty are to be left out.

    >>> pair_turns(5), pair_turns(3, pairing="sliding", context=1)
    ([(0, 1), (2, 3)], [(0, 1), (0, 2)])

    Args:
        num_turns: how many turns the dialogue has.
        pairing: alternate (turns 0 and 1, 2 and 3, ...; an odd last turn has no answer) or
            sliding (0 and 1, 1 and 2, ...: every turn answers the one before).
        context: how many earlier turns of the dialogue come before the question's own, at most.

    Raises:
        ValueError: the pairing is unknown or the context negative.
    """
    if context < 0:
        raise ValueError(f"context must be 0 or more turns. Received {context}.")
    last = num_turns - 1
    return [
        (max(0, question - context), question + 1) for question in range(0, last, _stride(pairing))
    ]


def unpaired_turns(num_turns: int, *, pairing: str = "alternate") -> int:
    """Returns how many turns of a dialogue are in no pair, 0 or 1.

    >>> unpaired_turns(5), unpaired_turns(5, pairing="sliding")
    (1, 0)
    """
    return num_turns % 2 if _stride(pairing) == 2 else int(num_turns == 1)


def _stride(pairing: str) -> int:
    if pairing not in PAIRINGS:
        raise ValueError(f"pairing must be one of {', '.join(PAIRINGS)}. Received {pairing!r}.")
    return 2 if pairing == "alternate" else 1

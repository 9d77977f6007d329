"""Checks of the arguments of models, and their error messages."""

from __future__ import annotations

from collections.abc import Sequence


def check_input_shape(input_shape: Sequence[int], *, smallest_side: int = 1) -> None:
    """Raises ValueError unless this is the shape of an image for the model.

    Args:
        input_shape: (height, width, channels), without the batch.
        smallest_side: the smallest height and width that leave pixels for the last layers.
    """
    sides = tuple(input_shape)
    if len(sides) != 3 or not all(isinstance(side, int) and side >= 1 for side in sides):
        raise ValueError(
            "input_shape must be (height, width, channels), without the batch, each a whole "
            f"number of at least 1. Received {input_shape!r}; expected for example (28, 28, 1)."
        )
    if min(sides[:2]) < smallest_side:
        raise ValueError(
            f"input_shape must be at least {smallest_side} x {smallest_side} for this model. "
            f"Received {input_shape!r}; enlarge or pad the images, or take a smaller model."
        )


def check_at_least(minimum: int, **counts: int) -> None:
    """Raises ValueError unless each named count is an integer of at least the minimum."""
    for name, count in counts.items():
        if not isinstance(count, int) or count < minimum:
            raise ValueError(
                f"{name} must be a whole number of at least {minimum}. Received {count!r}."
            )


def check_fraction(**fractions: float) -> None:
    """Raises ValueError unless each named fraction is in [0, 1)."""
    for name, fraction in fractions.items():
        if not 0 <= fraction < 1:
            raise ValueError(f"{name} must be in [0, 1). Received {fraction!r}.")


def check_not_negative(**numbers: float) -> None:
    """Raises ValueError unless each named number is finite and at least 0."""
    for name, number in numbers.items():
        if not 0 <= number < float("inf"):
            raise ValueError(f"{name} must not be negative. Received {number!r}; use 0 for none.")

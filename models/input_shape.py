"""The shape of the images that a model takes."""

from __future__ import annotations

from collections.abc import Sequence


def check_input_shape(input_shape: Sequence[int], *, smallest_side: int = 1) -> None:
    """Raises ValueError unless this is the shape of an image for a model.

    Args:
        input_shape: (height, width, channels), without the batch.
        smallest_side: the smallest height and width that leave pixels for the last layers.
    """
    sides = tuple(input_shape)
    if len(sides) != 3 or not all(isinstance(side, int) and side >= 1 for side in sides):
        raise ValueError(
            "input_shape must be (height, width, channels), without the batch, each a whole "
            f"number of at least 1. Received {input_shape!r}; expected something like (28, 28, 1)."
        )
    if min(sides[:2]) < smallest_side:
        raise ValueError(
            f"input_shape must be at least {smallest_side} x {smallest_side} for this model. "
            f"Received {input_shape!r}; enlarge or pad the images, or use a smaller model."
        )

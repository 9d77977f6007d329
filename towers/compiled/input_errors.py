"""Errors of the data, which TensorFlow reports with its graph, in one sentence."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator

import tensorflow as tf

from towers.batches.shards import DIFFERING_ROWS, NO_ROWS

SENTENCE = re.compile(
    rf"\[((?:{re.escape(DIFFERING_ROWS)}|{re.escape(NO_ROWS)})[^]]*)\]( \[[^]]*\])?"
)
OTHER_SHAPE = re.compile(r"yielded an element of shape (\(.*?\)) where .* shape (\(.*?\)) was exp")


@contextlib.contextmanager
def in_one_sentence() -> Iterator[None]:
    """The scope in which what TensorFlow says of wrong batches becomes a ValueError."""
    try:
        yield
    except tf.errors.InvalidArgumentError as error:
        said = SENTENCE.search(error.message)
        shapes = OTHER_SHAPE.search(error.message)
        if said:
            raise ValueError(said[1] + (said[2] or "")) from None
        if shapes:
            raise ValueError(
                "Which lengths differ between batches follows from the first two, as in Keras. "
                f"These say {shapes[2]}. Received a batch of shape {shapes[1]}; let the first two "
                "differ in every length that changes, or pad the batches to one length."
            ) from None
        raise

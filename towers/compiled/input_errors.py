"""Errors of the data, which TensorFlow and Keras report with graphs and arrays, in one sentence."""

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
LABEL = re.compile(r"label value of (-?\d+) which is outside the valid range of \[0, (\d+)\)")
TAKEN = re.compile(r"Invalid input shape .*Expected shape (\(.*?\)), .* shape (\(.*?\))", re.DOTALL)
LAYER = r"of layer '([^']*)' is incompatible with the layer: expected "
LAST = re.compile(rf"{LAYER}axis -1 of input shape to have value (\d+), .* shape (\(.*?\))")
DIMENSIONS = re.compile(rf"{LAYER}(min_)?ndim=(\d+), found .* shape received: (\(.*?\))")
RANKS = re.compile(r"target\.shape=(\(.*?\)), output\.shape=(\(.*?\))")


@contextlib.contextmanager
def in_one_sentence() -> Iterator[None]:
    """The scope in which what TensorFlow and Keras say of wrong batches becomes a ValueError."""
    try:
        yield
    except ValueError as error:
        if sentence := sentence_for(str(error)):
            raise ValueError(sentence) from error
        raise
    except tf.errors.InvalidArgumentError as error:
        if label := LABEL.search(error.message):
            raise ValueError(
                f"Labels are the numbers of classes, from 0 on, and the model has {label[2]} "
                f"outputs. Received label {label[1]}; give the last layer an output for each class."
            ) from None
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


def sentence_for(message: str) -> str | None:
    """Returns what Keras's message about a shape means, None for another message."""
    if found := RANKS.search(message):
        return (
            f"The loss cannot compare labels of shape {found[1]} with outputs of {found[2]}. "
            "For classes, one number a row needs sparse_categorical_crossentropy, a row of 0 "
            "and 1 categorical_crossentropy."
        )
    if found := TAKEN.search(message):
        return (
            f"The model takes inputs of shape {found[1]}, rows first. Received {found[2]}; "
            f"{remedy_for(numbers_in(found[1]), numbers_in(found[2]))}."
        )
    if found := LAST.search(message):
        return (
            f"Layer '{found[1]}' takes inputs with {found[2]} numbers on the last axis. Received "
            f"shape {found[3]}; give x that shape, or build the model for this one."
        )
    if found := DIMENSIONS.search(message):
        least = " or more" if found[2] else ""
        return (
            f"Layer '{found[1]}' takes inputs of {found[3]} dimensions{least}, rows first. "
            f"Received shape {found[4]}; `.batch(32)` of a data set adds the rows, `x[..., None]` "
            "the channel of grey pictures."
        )
    return None


def remedy_for(expected: list[str], received: list[str]) -> str:
    """Returns what to do about inputs of another shape, which may be rows without a batch."""
    is_row = received[1:] == expected[2:] and len(received) < len(expected)
    return "batch the data set: `.batch(32)`" if is_row else "bring x to that shape"


def numbers_in(shape: str) -> list[str]:
    """Returns the lengths in a shape as it is printed.

    >>> numbers_in("(None, 8)"), numbers_in("(8,)"), numbers_in("()")
    (['None', '8'], ['8'], [])
    """
    return re.findall(r"\w+", shape)

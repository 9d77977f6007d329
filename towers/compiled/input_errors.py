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
LAST = re.compile(r"expected axis -1 of input shape to have value (\d+), .* shape (\(.*?\))")
DIMENSIONS = re.compile(r"expected (?:min_)?ndim=(\d+), found .* shape received: (\(.*?\))")
BATCHED = "`.batch(32)` makes batches of the rows of a data set"
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
        remedy = BATCHED if rank(found[2]) < rank(found[1]) else "bring x to that shape"
        return f"The model takes inputs of shape {found[1]}. Received {found[2]}; {remedy}."
    if found := LAST.search(message):
        return (
            f"A layer takes inputs of {found[1]} numbers on their last axis. Received inputs of "
            f"shape {found[2]}; bring x to what the model was made for."
        )
    if found := DIMENSIONS.search(message):
        return (
            f"A layer takes inputs of {found[1]} dimensions or more, that of the rows included. "
            f"Received inputs of shape {found[2]}; {BATCHED}."
        )
    return None


def rank(shape: str) -> int:
    """Returns the number of dimensions of a shape as it is printed.

    >>> rank("(None, 8)"), rank("(8,)"), rank("()")
    (2, 1, 0)
    """
    return len(re.findall(r"\w+", shape))

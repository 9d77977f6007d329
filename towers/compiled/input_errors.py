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
RANKS = re.compile(r"target\.shape=(\(.*?\)), output\.shape=(\(.*?\))")


@contextlib.contextmanager
def in_one_sentence() -> Iterator[None]:
    """The scope in which what TensorFlow and Keras say of wrong batches becomes a ValueError."""
    try:
        yield
    except ValueError as error:
        if ranks := RANKS.search(str(error)):
            raise ValueError(
                f"The loss cannot compare labels of shape {ranks[1]} with outputs of {ranks[2]}. "
                "For classes, one number a row needs sparse_categorical_crossentropy, a row of 0 "
                "and 1 categorical_crossentropy."
            ) from error
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

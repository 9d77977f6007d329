"""Errors of the data, which TensorFlow and Keras report with graphs and arrays, in one sentence."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator

import tensorflow as tf

from towers.batches.shards import DIFFERING_CALLS, DIFFERING_ROWS, NO_ROWS

SHAPE = r"(\(.*?\))"
LAYER = r"of layer ['\"]([^'\"]*)['\"] is incompatible with the layer: expected "
ADDED = (
    "rows first. Received shape {}; `.batch(32)` of a data set adds the rows, `x[..., None]` the "
    "channel of grey pictures."
)
# What is found in a message, and the sentence that it becomes.
SENTENCES = {
    rf"\[((?:{DIFFERING_CALLS}|{DIFFERING_ROWS}|{NO_ROWS})[^]]*)\]( \[[^]]*\])?": "{}{}",
    r"(This process's part of the data ended after .*)": "{}",
    "variable 'batch_outputs'": "There is nothing to predict: the data has no examples.",
    r"cardinality is ambiguous.*'x' sizes: (.*)\n'y' sizes: (.*)\n?\Z": (
        "All arrays need the same number of rows. Received {:.40} of x and {:.40} of y; np.asarray "
        "makes one array of a list of rows."
    ),
    r"^Unrecognized data type: x=.* \(of type <class '([^']*)'>": (
        "x takes arrays of numbers, a tf.data.Dataset, a keras.utils.PyDataset or a generator of "
        "batches. Received {}; np.asarray makes an array of a list."
    ),
    rf"yielded an element of shape {SHAPE} where .* shape {SHAPE} was exp": (
        "Which lengths differ between batches follows from the first two, as in Keras. These say "
        "{1}. Received a batch of shape {0}; let the first two differ in every length that "
        "changes, or pad the batches to one length."
    ),
    r"label value of (-?\d+) which is outside the valid range of \[0, (\d+)\)": (
        "Labels are the numbers of classes, from 0 on, and the model has {1} outputs. Received "
        "label {0}; give the last layer an output for each class."
    ),
    rf"target\.shape={SHAPE}, output\.shape={SHAPE}": (
        "The loss cannot compare labels of shape {} with outputs of {}. For classes, one number a "
        "row needs sparse_categorical_crossentropy, a row of 0 and 1 categorical_crossentropy."
    ),
    rf"(?s:Invalid input shape .*Expected shape {SHAPE}, .* shape {SHAPE})": (
        "The model takes inputs of shape {}, rows first. Received {}; batch the data set if it "
        "gives single rows (`.batch(32)`), or bring x to that shape."
    ),
    rf"{LAYER}axis -1 of input shape to have value (\d+), .* shape {SHAPE}": (
        "Layer '{}' takes inputs with {} numbers on the last axis. Received shape {}; give x that "
        "shape, or build the model for this one."
    ),
    rf"{LAYER}min_ndim=(\d+), found .* shape received: {SHAPE}": (
        f"Layer '{{}}' takes inputs of {{}} dimensions or more, {ADDED}"
    ),
    rf"{LAYER}ndim=(\d+), found .* shape received: {SHAPE}": (
        f"Layer '{{}}' takes inputs of {{}} dimensions, {ADDED}"
    ),
}


@contextlib.contextmanager
def in_one_sentence() -> Iterator[None]:
    """The scope in which what TensorFlow and Keras say of wrong batches becomes a ValueError."""
    try:
        yield
    except (ValueError, RuntimeError, UnboundLocalError, tf.errors.InvalidArgumentError) as error:
        cause = error if isinstance(error, ValueError) else None  # TensorFlow's is a graph.
        for pattern, sentence in SENTENCES.items():
            if found := re.search(pattern, str(error)):
                raise ValueError(sentence.format(*found.groups(default=""))) from cause
        raise

"""The test data of an image run class by class: which class was taken for which."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from towers.scripts.classifying.predictions import class_names, network_of
from towers.scripts.shown import table
from towers.scripts.training.session import Session

MOST_COLUMNS = 20  # With more classes, only the most frequent confusions are shown.
MOST_CONFUSIONS = 10
NAME_WIDTH = 12  # In the matrix, beside up to 20 columns.


class Confusion(NamedTuple):
    """The examples of the test data by class.

    Attributes:
        class_names: of the classes, in order.
        counts: int64 [true class, predicted class], the examples.
    """

    class_names: tuple[str, ...]
    counts: np.ndarray

    @property
    def rates(self) -> np.ndarray:
        """Recall, precision and F1 of each class: float64 [3, classes].

        The fraction of its examples that were recognised, NaN without an example; that of its
        predictions that were right, NaN without a prediction; their harmonic mean, NaN without any.
        """
        right, true, predicted = self.counts.diagonal(), self.counts.sum(1), self.counts.sum(0)
        parts = np.stack([right, right, 2 * right])
        totals = np.stack([true, predicted, true + predicted])
        return np.divide(parts, totals, out=np.full(parts.shape, np.nan), where=totals > 0)


def count_confusions(session: Session) -> Confusion:
    """Returns the confusions of a session's model over the test data, each example once."""
    names, network = class_names(session), network_of(session)
    size = len(names)
    counts = np.zeros([size, size], np.int64)

    @tf.function(reduce_retracing=True, autograph=False)
    def predict(batch: tf.Tensor) -> tf.Tensor:
        return tf.argmax(network(batch, training=False), -1)

    for batch, labels in session.data.test(0, 0):
        np.add.at(counts, (labels.numpy(), predict(batch).numpy()), 1)
    return Confusion(names, counts)


def describe(confusion: Confusion) -> Iterator[str]:
    """Yields a table of the classes, and the confusion matrix or the largest confusions."""
    yield from table(class_rows(confusion))
    yield ""
    if len(confusion.class_names) > MOST_COLUMNS:
        yield from table(largest_confusions(confusion))
    else:
        yield "rows: true classes; columns: predicted classes, in the same order"
        yield from matrix_lines(confusion)


def class_rows(confusion: Confusion) -> Iterator[Sequence[str]]:
    """Yields the rows of the table of classes."""
    yield ("class", "examples", "recall", "precision", "f1")
    columns = (confusion.class_names, confusion.counts.sum(1), confusion.rates.T)
    for name, examples, rates in zip(*columns, strict=True):
        yield (name, str(examples), *("-" if np.isnan(one) else f"{one:.3f}" for one in rates))


def matrix_lines(confusion: Confusion) -> Iterator[str]:
    """Yields the lines of the matrix; zeros are dots."""
    width = max(len(str(confusion.counts.max())), 2) + 1
    cells = ["".join(f"{count or '.':>{width}}" for count in row) for row in confusion.counts]
    yield from table(zip(map(shortened, confusion.class_names), cells, strict=True), between="")


def largest_confusions(confusion: Confusion) -> Iterator[Sequence[str]]:
    """Yields the rows of a table of the most frequent confusions."""
    yield ("true", "predicted", "examples")
    wrong = confusion.counts * ~np.eye(len(confusion.counts), dtype=bool)
    for index in np.argsort(-wrong, axis=None, kind="stable")[:MOST_CONFUSIONS]:
        true, predicted = np.unravel_index(index, wrong.shape)
        if wrong[true, predicted]:
            names = (confusion.class_names[true], confusion.class_names[predicted])
            yield (*names, str(wrong[true, predicted]))


def shortened(name: str) -> str:
    """Returns a name of at most the column's width."""
    return name if len(name) <= NAME_WIDTH else name[: NAME_WIDTH - 1] + "…"

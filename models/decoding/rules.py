"""What may be said next: forbidden ids, the end, repetitions."""

from __future__ import annotations

from typing import NamedTuple

import tensorflow as tf

from towers.models.decoding.options import Decoding


class Rules(NamedTuple):
    """What may be said next.

    Attributes:
        decoding: the options.
        forbidden: ids that are never said.
        end: the id that ends a sequence.
    """

    decoding: Decoding
    forbidden: tuple[int, ...]
    end: int

    def log_probabilities(
        self, logits: tf.Tensor, said: tf.Tensor, position: tf.Tensor
    ) -> tf.Tensor:
        """Returns float32 [rows, vocabulary], -inf for what may not come next.

        Args:
            logits: [rows, vocabulary].
            said: int32 [rows, max_length], what was said so far, then 0.
            position: how many tokens that is.
        """
        logits = tf.cast(logits, tf.float32)
        barred = self._barred(tf.shape(logits)[1], position)[None, :]
        if self.decoding.repetition_penalty != 1.0:
            penalty = self.decoding.repetition_penalty
            penalised = tf.where(logits > 0, logits / penalty, logits * penalty)
            logits = tf.where(said_before(said, position, tf.shape(logits)[1]), penalised, logits)
        logits = tf.where(barred, -float("inf"), logits)
        if self.decoding.no_repeat_ngram is not None:
            size = self.decoding.no_repeat_ngram
            again = repeats(said, position, size, tf.shape(logits)[1])
            # Where every token would repeat, the rule gives way: something has to be said.
            possible = tf.reduce_any(~again & (logits > -float("inf")), 1, keepdims=True)
            logits = tf.where(again & possible, -float("inf"), logits)
        return tf.nn.log_softmax(logits)

    def _barred(self, vocabulary_size: tf.Tensor, position: tf.Tensor) -> tf.Tensor:
        """Returns which ids are forbidden at this position, bool [vocabulary]."""
        ids = tf.range(vocabulary_size)
        barred = tf.zeros_like(ids, tf.bool)
        for one in self.forbidden:
            barred |= tf.equal(ids, one)
        return barred | (tf.equal(ids, self.end) & (position < self.decoding.min_length))


def said_before(said: tf.Tensor, position: tf.Tensor, vocabulary_size: tf.Tensor) -> tf.Tensor:
    """Returns bool [rows, vocabulary], True for the tokens that a row has said."""
    rows, length = tf.unstack(tf.shape(said))
    places = tf.stack([tf.repeat(tf.range(rows), length), tf.reshape(said, [-1])], 1)
    counts = tf.cast(tf.tile(tf.range(length) < position, [rows]), tf.int32)
    shape = tf.stack([rows, vocabulary_size])
    return tf.scatter_nd(places, counts, shape) > 0


def repeats(
    said: tf.Tensor, position: tf.Tensor, size: int, vocabulary_size: tf.Tensor
) -> tf.Tensor:
    """Returns bool [rows, vocabulary], True for tokens that would complete an n-gram again.

    Args:
        said: int32 [rows, length].
        position: how many tokens of them were said.
        size: n.
        vocabulary_size: of the result.
    """
    rows, length = tf.unstack(tf.shape(said))
    # Column j of `same` says whether the n-1 tokens from j on are the last n-1 that were said.
    starts = tf.range(length)
    same = tf.tile((starts + size - 1 < position)[None, :], [rows, 1])
    for offset in range(size - 1):
        last = tf.gather(said, tf.maximum(position - (size - 1) + offset, 0), axis=1)
        column = tf.roll(said, -offset, axis=1)
        same &= tf.equal(column, last[:, None])
    following = tf.roll(said, -(size - 1), axis=1)
    places = tf.stack([tf.repeat(tf.range(rows), length), tf.reshape(following, [-1])], 1)
    counts = tf.cast(tf.reshape(same, [-1]), tf.int32)
    return tf.scatter_nd(places, counts, tf.stack([rows, vocabulary_size])) > 0

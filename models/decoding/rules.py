"""The rules for the next token: forbidden ids and repetitions."""

from __future__ import annotations

from typing import NamedTuple

import tensorflow as tf

from towers.models.decoding.options import Decoding


class Rules(NamedTuple):
    """The rules for the next token.

    Attributes:
        decoding: the options.
        forbidden: ids that are never generated.
        end: the id that ends a sequence.
    """

    decoding: Decoding
    forbidden: tuple[int, ...]
    end: int

    def log_probabilities(
        self, logits: tf.Tensor, generated: tf.Tensor, position: tf.Tensor
    ) -> tf.Tensor:
        """Returns float32 [rows, vocabulary], -inf for tokens that are not allowed.

        Args:
            logits: [rows, vocabulary].
            generated: int32 [rows, max_length], the tokens so far, then padding.
            position: number of tokens so far.
        """
        logits = tf.cast(logits, tf.float32)
        ids = tf.range(tf.shape(logits)[1])
        not_allowed = tf.reduce_any(ids[:, None] == tf.constant(self.forbidden, tf.int32), 1)
        if self.decoding.repetition_penalty != 1.0:
            penalty = self.decoding.repetition_penalty
            penalised = tf.where(logits > 0, logits / penalty, logits * penalty)
            repeated = completes_ngram(generated, position, 1, tf.shape(logits)[1])
            logits = tf.where(repeated, penalised, logits)
        logits = tf.where(not_allowed, -float("inf"), logits)
        if self.decoding.no_repeat_ngram is not None:
            size = self.decoding.no_repeat_ngram
            repeated = completes_ngram(generated, position, size, tf.shape(logits)[1])
            # If every token would repeat an n-gram, the rule does not apply.
            possible = tf.reduce_any(~repeated & (logits > -float("inf")), 1, keepdims=True)
            logits = tf.where(repeated & possible, -float("inf"), logits)
        return tf.nn.log_softmax(logits)


def completes_ngram(
    generated: tf.Tensor, position: tf.Tensor, size: int, vocabulary_size: tf.Tensor
) -> tf.Tensor:
    """Returns bool [rows, vocabulary], True for tokens that would complete an n-gram again.

    A row, int32 [length], has `position` tokens. With size 1 they are those that occur in it.
    """
    rows, length = tf.unstack(tf.shape(generated))
    # Column j of `same`: whether the n-1 tokens from j on are the last n-1 tokens of the row.
    starts = tf.range(length)
    same = tf.tile((starts + size - 1 < position)[None, :], [rows, 1])
    for offset in range(size - 1):
        last = tf.gather(generated, tf.maximum(position - (size - 1) + offset, 0), axis=1)
        column = tf.roll(generated, -offset, axis=1)
        same &= tf.equal(column, last[:, None])
    following = tf.roll(generated, -(size - 1), axis=1)
    indices = tf.stack([tf.repeat(tf.range(rows), length), tf.reshape(following, [-1])], 1)
    counts = tf.cast(tf.reshape(same, [-1]), tf.int32)
    return tf.scatter_nd(indices, counts, tf.stack([rows, vocabulary_size])) > 0

"""Decoding one token after the other: the likeliest, or one that is drawn."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from towers.models.decoding.beam_search import any_number_of_rows
from towers.models.decoding.options import Decoding, Step
from towers.models.decoding.rules import Rules


def run(
    step: Step, state: Any, first: tf.Tensor, rules: Rules, seed: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Returns ids int32 [rows, length], log probabilities float32 [rows] and lengths int32 [rows].

    Args:
        step: the model's next-token logits.
        state: before the first token.
        first: int32 [rows], what the first step is given.
        rules: what may be said.
        seed: int64 [2].
    """
    decoding, end = rules.decoding, rules.end
    rows = tf.shape(first)[0]

    def unfinished(position, tokens, state, said, scores, ended):  # type: ignore[no-untyped-def]
        return (position < decoding.max_length) & ~tf.reduce_all(ended)

    def advance(position, tokens, state, said, scores, ended):  # type: ignore[no-untyped-def]
        logits, state = step(tokens, state)
        likely = rules.log_probabilities(logits, said, position)
        tokens = choose(likely, decoding, tf.random.experimental.stateless_fold_in(seed, position))
        gained = tf.gather(likely, tokens, batch_dims=1)
        tokens = tf.where(ended, 0, tokens)
        scores += tf.where(ended, 0.0, gained)
        column = tf.one_hot(position, decoding.max_length, on_value=True, off_value=False)
        said = tf.where(column[None, :], tokens[:, None], said)
        return position + 1, tokens, state, said, scores, ended | tf.equal(tokens, end)

    said = tf.zeros([rows, decoding.max_length], tf.int32)
    initial = (tf.constant(0), first, state, said, tf.zeros([rows]), tf.zeros([rows], tf.bool))
    position, _, _, said, scores, _ = tf.while_loop(
        unfinished, advance, initial, shape_invariants=any_number_of_rows(initial)
    )
    lengths = tf.reduce_sum(tf.cast(tf.not_equal(said, 0), tf.int32), 1)
    return said[:, :position], scores, lengths


def choose(likely: tf.Tensor, decoding: Decoding, seed: tf.Tensor) -> tf.Tensor:
    """Returns a token for each row, int32 [rows], from log probabilities [rows, vocabulary]."""
    if not decoding.samples:
        return tf.argmax(likely, -1, tf.int32)
    kept = truncate(likely / (decoding.temperature or 1.0), decoding.top_k, decoding.top_p)
    return tf.random.stateless_categorical(kept, 1, seed, tf.int32)[:, 0]


def truncate(logits: tf.Tensor, top_k: int | None, top_p: float | None) -> tf.Tensor:
    """Returns the logits, -inf outside of the `top_k` likeliest and of the share `top_p`.

    A token that is as likely as the last one that is kept is kept too.
    """
    if top_k is not None:
        count = tf.minimum(top_k, tf.shape(logits)[1])
        least = tf.math.top_k(logits, count).values[:, -1:]
        logits = tf.where(logits < least, -float("inf"), logits)
    if top_p is not None:
        ordered = tf.sort(logits, direction="DESCENDING")
        before = tf.cumsum(tf.nn.softmax(ordered), axis=1, exclusive=True)
        kept = tf.where(before < top_p, ordered, float("inf"))
        least = tf.reduce_min(kept, 1, keepdims=True)
        logits = tf.where(logits < least, -float("inf"), logits)
    return logits

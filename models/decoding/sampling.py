"""Greedy search and sampling: one token after the other, the most probable or a random one."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from towers.ground.special_ids import PAD
from towers.models.decoding.beam_search import any_number_of_rows, with_token
from towers.models.decoding.options import DecoderStep, Decoding
from towers.models.decoding.rules import Rules


def generate(
    step: DecoderStep, state: Any, first: tf.Tensor, rules: Rules, seed: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Returns ids int32 [rows, length], log probabilities float32 [rows] and lengths int32 [rows].

    The input of the first step is int32 [rows], and the seed of the samples int64 [2].
    """
    decoding = rules.decoding
    rows = tf.shape(first)[0]

    def unfinished(position, tokens, state, generated, scores, ended):  # type: ignore[no-untyped-def]
        return (position < decoding.max_length) & ~tf.reduce_all(ended)

    def advance(position, tokens, state, generated, scores, ended):  # type: ignore[no-untyped-def]
        logits, state = step(tokens, state)
        log_probabilities = rules.log_probabilities(logits, generated, position)
        tokens = choose(
            log_probabilities, decoding, tf.random.experimental.stateless_fold_in(seed, position)
        )
        gained = tf.gather(log_probabilities, tokens, batch_dims=1)
        tokens = tf.where(ended, PAD, tokens)
        scores += tf.where(ended, 0.0, gained)
        generated = with_token(generated, tokens, position)
        return position + 1, tokens, state, generated, scores, ended | tf.equal(tokens, rules.end)

    generated = tf.fill([rows, decoding.max_length], PAD)
    initial = (tf.constant(0), first, state, generated, tf.zeros([rows]), tf.zeros([rows], tf.bool))
    position, _, _, generated, scores, _ = tf.while_loop(
        unfinished, advance, initial, shape_invariants=any_number_of_rows(initial)
    )
    lengths = tf.reduce_sum(tf.cast(tf.not_equal(generated, PAD), tf.int32), 1)
    return generated[:, :position], scores, lengths


def choose(log_probabilities: tf.Tensor, decoding: Decoding, seed: tf.Tensor) -> tf.Tensor:
    """Returns a token for each row, int32 [rows], given log probabilities [rows, vocabulary]."""
    if not decoding.samples:
        return tf.argmax(log_probabilities, -1, tf.int32)
    kept = truncate(
        log_probabilities / (decoding.temperature or 1.0), decoding.top_k, decoding.top_p
    )
    return tf.random.stateless_categorical(kept, 1, seed, tf.int32)[:, 0]


def truncate(logits: tf.Tensor, top_k: int | None, top_p: float | None) -> tf.Tensor:
    """Returns the logits, -inf outside of the `top_k` tokens and of the nucleus `top_p`.

    Tokens with the same probability as the last one inside are inside too.
    """
    if top_k is not None:
        count = tf.minimum(top_k, tf.shape(logits)[1])
        least = tf.math.top_k(logits, count).values[:, -1:]
        logits = tf.where(logits < least, -float("inf"), logits)
    if top_p is not None:
        ordered = tf.sort(logits, direction="DESCENDING")
        probability_before = tf.cumsum(tf.nn.softmax(ordered), axis=1, exclusive=True)
        kept = tf.where(probability_before < top_p, ordered, float("inf"))
        least = tf.reduce_min(kept, 1, keepdims=True)
        logits = tf.where(logits < least, -float("inf"), logits)
    return logits

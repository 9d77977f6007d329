"""Decoding: from a model's next-token logits to whole sequences, inside one graph.

Everything here works on any `step(tokens: int32 [rows], state) -> (logits [rows, vocabulary],
state)` whose state is a nest of tensors with rows first.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from towers.models.decoding import beam_search, sampling
from towers.models.decoding.options import Decoding, Step
from towers.models.decoding.rules import Rules


class Decoded(NamedTuple):
    """Decoded sequences, the best first.

    Attributes:
        ids: int32 [batch, n_best, length], each up to its end token, then 0.
        scores: float32 [batch, n_best]: the log probability; of a beam search divided by the
            length penalty. -inf where fewer sequences were found.
        lengths: int32 [batch, n_best], tokens with the end token.
    """

    ids: tf.Tensor
    scores: tf.Tensor
    lengths: tf.Tensor


def decode(
    step: Step,
    state: Any,
    decoding: Decoding,
    *,
    start: int,
    end: int,
    forbidden: Sequence[int],
    batch_size: tf.Tensor,
    seed: tf.Tensor,
) -> Decoded:
    """Returns what the model says, as the options ask.

    Args:
        step: the model's next-token logits.
        state: before the first token, `batch_size` rows.
        decoding: how.
        start: the id that the first step is given.
        end: the id that ends a sequence; no other step follows it.
        forbidden: ids that are never said.
        batch_size: rows.
        seed: int64 [2], what samples are drawn from.
    """
    rules = Rules(decoding, tuple(forbidden), end)
    first = tf.fill([batch_size], start)
    if decoding.beam_size > 1:
        return Decoded(*beam_search.search(step, state, first, rules))
    copies = decoding.n_best if decoding.samples else 1
    state = beam_search.repeat_rows(state, copies)
    first = tf.repeat(first, copies)
    ids, scores, lengths = sampling.run(step, state, first, rules, seed)
    shape = tf.stack([batch_size, copies])
    return Decoded(
        tf.reshape(ids, tf.concat([shape, [tf.shape(ids)[1]]], 0)),
        tf.reshape(scores, shape),
        tf.reshape(lengths, shape),
    )

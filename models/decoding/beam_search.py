"""Beam search: at each length it keeps the most probable hypotheses and extends them."""

from __future__ import annotations

from typing import Any, NamedTuple

import tensorflow as tf

from towers.ground.special_ids import PAD
from towers.models.decoding.options import DecoderStep
from towers.models.decoding.rules import Rules

IMPOSSIBLE = -float("inf")


class Hypotheses(NamedTuple):
    """Sequences, the best first.

    Attributes:
        ids: int32 [batch, beam, max_length], each with padding behind its last token.
        scores: float32 [batch, beam]: the log probability, of finished hypotheses divided by the
            length penalty.
    """

    ids: tf.Tensor
    scores: tf.Tensor


def search(
    step: DecoderStep, state: Any, first: tf.Tensor, rules: Rules
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Returns the n best: ids [batch, n_best, length], scores and lengths [batch, n_best].

    A sequence that reaches the maximum length without the end token counts as finished. The search
    ends as soon as no open hypothesis can become better than the worst one of the results.
    """
    decoding = rules.decoding
    batch, beam, length = tf.shape(first)[0], decoding.beam_size, decoding.max_length
    empty = tf.fill([batch, beam, length], PAD)
    only_first = tf.where(tf.range(beam) == 0, 0.0, IMPOSSIBLE)  # All beams are equal at first.
    opened = Hypotheses(empty, tf.tile(only_first[None, :], [batch, 1]))
    finished = Hypotheses(empty, tf.fill([batch, beam], IMPOSSIBLE))

    def unfinished(position, tokens, state, opened, finished):  # type: ignore[no-untyped-def]
        return (position < length) & tf.reduce_any(can_improve(opened, finished, rules))

    def advance(position, tokens, state, opened, finished):  # type: ignore[no-untyped-def]
        logits, state = step(tokens, state)
        log_probabilities = rules.log_probabilities(
            logits, tf.reshape(opened.ids, [-1, length]), position
        )
        grown, ended, parents = grow(opened, log_probabilities, position, rules)
        finished = best_of(finished, ended, beam)
        rows = tf.reshape(parents + tf.range(batch)[:, None] * beam, [-1])
        state = tf.nest.map_structure(lambda part: tf.gather(part, rows), state)
        tokens = tf.reshape(tf.gather(grown.ids, position, axis=2), [-1])
        return position + 1, tokens, state, grown, finished

    initial = (
        tf.constant(0),
        tf.repeat(first, beam),
        repeat_rows(state, beam),
        opened,
        finished,
    )
    position, _, _, opened, finished = tf.while_loop(
        unfinished, advance, initial, shape_invariants=any_number_of_rows(initial)
    )
    cut = opened._replace(scores=opened.scores / penalty(length, rules))
    at_end = tf.equal(position, length)
    cut = cut._replace(scores=tf.where(at_end, cut.scores, IMPOSSIBLE))
    best = best_of(finished, cut, decoding.n_best)
    found = best.scores > IMPOSSIBLE
    ids = tf.where(found[:, :, None], best.ids, PAD)[:, :, :position]
    lengths = tf.reduce_sum(tf.cast(tf.not_equal(ids, PAD), tf.int32), 2)
    return ids, best.scores, lengths


def grow(
    opened: Hypotheses, log_probabilities: tf.Tensor, position: tf.Tensor, rules: Rules
) -> tuple[Hypotheses, Hypotheses, tf.Tensor]:
    """Returns the best open hypotheses with one more token, the ended ones, and the parents.

    Args:
        opened: hypotheses of `position` tokens.
        log_probabilities: of the next token, [batch * beam, vocabulary].
        position: number of tokens so far.
        rules: the end token and the options.

    The parents are int32 [batch, beam], the index of the hypothesis that each open one extends.
    """
    beam, end = rules.decoding.beam_size, rules.end
    batch = tf.shape(opened.scores)[0]
    at_end = tf.reshape(log_probabilities[:, end], [batch, beam])
    ended = Hypotheses(
        with_token(opened.ids, tf.fill([batch, beam], end), position),
        (opened.scores + at_end) / penalty(position + 1, rules),
    )
    is_end = tf.equal(tf.range(tf.shape(log_probabilities)[1]), end)
    count = tf.minimum(beam, tf.shape(log_probabilities)[1])
    # The best of a row suffice: at most `beam` of them can be among the best of all rows.
    values, tokens = tf.math.top_k(tf.where(is_end[None, :], IMPOSSIBLE, log_probabilities), count)
    values = tf.reshape(values, [batch, beam, count]) + opened.scores[:, :, None]
    values, tokens = (tf.reshape(part, [batch, beam * count]) for part in (values, tokens))
    scores, indices = tf.math.top_k(values, beam)
    parents = indices // count
    ids = tf.gather(opened.ids, parents, batch_dims=1)
    chosen = tf.gather(tokens, indices, batch_dims=1)
    return Hypotheses(with_token(ids, chosen, position), scores), ended, parents


def can_improve(opened: Hypotheses, finished: Hypotheses, rules: Rules) -> tf.Tensor:
    """Returns bool [batch]: whether an open hypothesis can become better than the worst result.

    Log probabilities only decrease, and the length penalty is largest at the maximum length.
    """
    best = tf.reduce_max(opened.scores, 1) / penalty(rules.decoding.max_length, rules)
    return best > finished.scores[:, rules.decoding.n_best - 1]


def best_of(first: Hypotheses, second: Hypotheses, count: int) -> Hypotheses:
    """Returns the best `count` hypotheses of both."""
    ids = tf.concat([first.ids, second.ids], 1)
    scores, indices = tf.math.top_k(tf.concat([first.scores, second.scores], 1), count)
    return Hypotheses(tf.gather(ids, indices, batch_dims=1), scores)


def with_token(ids: tf.Tensor, tokens: tf.Tensor, position: tf.Tensor) -> tf.Tensor:
    """Returns the ids, [..., length], with the tokens [...] at a position."""
    here = tf.equal(tf.range(tf.shape(ids)[-1]), position)
    return tf.where(here, tokens[..., None], ids)


def penalty(length: int | tf.Tensor, rules: Rules) -> tf.Tensor:
    """Returns ((5 + length) / 6)^alpha (Wu et al. 2016, equation 14)."""
    return ((5.0 + tf.cast(length, tf.float32)) / 6.0) ** rules.decoding.length_penalty


def repeat_rows(state: Any, times: int) -> Any:
    """Returns the state with each row repeated."""
    return tf.nest.map_structure(lambda part: tf.repeat(part, times, axis=0), state)


def any_number_of_rows(nest: Any) -> Any:
    """Returns the shapes of a loop's variables with an unknown number of rows.

    A side of length 0, as of the keys of no tokens, may grow.
    """

    def shape_of(part: Any) -> tf.TensorShape:
        shape = part.shape
        return (
            tf.TensorShape([None, *(side or None for side in shape[1:])]) if shape.rank else shape
        )

    return tf.nest.map_structure(shape_of, nest)

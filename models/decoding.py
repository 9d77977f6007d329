"""Decoding: from a model's next-token logits to whole sequences, inside one graph.

Everything here works on any `step(tokens: int32 [rows], state) -> (logits [rows, vocabulary],
state)` whose state is a nest of tensors with rows first.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from models import beam_search, sampling
from models.arguments import check_at_least

Step = Callable[[tf.Tensor, Any], tuple[tf.Tensor, Any]]


@dataclasses.dataclass(frozen=True)
class Decoding:
    """How to decode.

    Without beams and temperature, top_k or top_p: greedily, the likeliest token each time.

    Args:
        beam_size: hypotheses that are followed; 1 for none.
        length_penalty: exponent alpha of ((5 + length) / 6)^alpha, by which a hypothesis's log
            probability is divided (Wu et al. 2016, section 7); 0 for none.
        n_best: sequences to return; at most beam_size, or so many samples.
        temperature: what logits are divided by before a sample is drawn; None for no sampling.
        top_k: sample only of so many likeliest tokens.
        top_p: sample only of the fewest likeliest tokens that hold this share of the probability
            (Holtzman et al. 2020).
        no_repeat_ngram: no sequence of so many tokens occurs twice; None for no such rule.
        repetition_penalty: what the logits of tokens already said are divided by if above 0, and
            multiplied with if below; 1 for none. Keskar et al. 2019, section 4.1, always divide.
        max_length: tokens at most, the end token included.
        min_length: tokens at least before the end token.
    """

    beam_size: int = 1
    length_penalty: float = 1.0
    n_best: int = 1
    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    no_repeat_ngram: int | None = None
    repetition_penalty: float = 1.0
    max_length: int = 30
    min_length: int = 0

    def __post_init__(self) -> None:
        check_at_least(1, beam_size=self.beam_size, n_best=self.n_best, max_length=self.max_length)
        check_at_least(0, min_length=self.min_length)
        for name in ("top_k", "no_repeat_ngram"):
            if getattr(self, name) is not None:
                check_at_least(1, **{name: getattr(self, name)})
        if self.temperature is not None and not 0 < self.temperature < float("inf"):
            raise ValueError(f"temperature must be above 0. Received {self.temperature}.")
        if self.top_p is not None and not 0 < self.top_p <= 1:
            raise ValueError(f"top_p must be above 0 and at most 1. Received {self.top_p}.")
        if not 0 < self.repetition_penalty < float("inf"):
            raise ValueError(
                f"repetition_penalty must be above 0. Received {self.repetition_penalty}."
            )
        if not 0 <= self.length_penalty < float("inf"):
            raise ValueError(
                f"length_penalty must not be negative. Received {self.length_penalty}."
            )
        if self.min_length >= self.max_length:
            raise ValueError(
                f"min_length must be below max_length. Received {self.min_length} and "
                f"{self.max_length}."
            )
        if self.samples and self.beam_size > 1:
            raise ValueError(
                "Beams and samples exclude each other. Received "
                f"beam_size={self.beam_size} with temperature, top_k or top_p."
            )
        if not self.samples and self.n_best > self.beam_size:
            raise ValueError(
                f"n_best must be at most beam_size. Received n_best={self.n_best}, "
                f"beam_size={self.beam_size}; widen the beam or sample."
            )

    @property
    def samples(self) -> bool:
        """Whether tokens are drawn instead of chosen."""
        return any(part is not None for part in (self.temperature, self.top_k, self.top_p))


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

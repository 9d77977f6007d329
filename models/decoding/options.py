"""How to decode: the options, checked, and what a model offers to be decoded."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from towers.models.arguments import check_at_least

# `step(tokens: int32 [rows], state) -> (logits [rows, vocabulary], state)`.
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

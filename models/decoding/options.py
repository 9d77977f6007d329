"""The options of decoding, checked, and the interface of a model that can be decoded."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from towers.ground.arguments import check_above_0, check_at_least, check_not_negative, is_number

# `step(tokens: int32 [rows], state) -> (logits [rows, vocabulary], state)`.
DecoderStep = Callable[[tf.Tensor, Any], tuple[tf.Tensor, Any]]
LEAST_TEMPERATURE, MOST_TEMPERATURE = 1e-30, 1e30  # Others may overflow float32.


@dataclasses.dataclass(frozen=True)
class Decoding:
    """The options of decoding.

    By default the search is greedy: the most probable token at each step. `beam_size` above 1 is
    beam search; temperature, top_k or top_p is sampling.

    Args:
        beam_size: number of hypotheses; 1 for no beam search.
        length_penalty: exponent alpha of ((5 + length) / 6)^alpha, the divisor of a hypothesis's
            log probability (Wu et al. 2016, section 7); 0 for none.
        n_best: number of sequences to return: at most beam_size, or the number of samples.
        temperature: divisor of the logits before sampling, 1e-30 to 1e30; None for no sampling.
        top_k: samples from the k most probable tokens only.
        top_p: nucleus sampling: samples from the smallest set of tokens with probability p
            (Holtzman et al. 2020).
        no_repeat_ngram: no n-gram of this size occurs twice; None for no such rule.
        repetition_penalty: divisor of the positive logits, and factor of the negative logits, of
            tokens that were generated before; 1 for none. Keskar et al. 2019, section 4.1, always
            divide.
        max_length: maximum number of tokens, the end token included.
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

    def __post_init__(self) -> None:
        check_at_least(1, beam_size=self.beam_size, n_best=self.n_best, max_length=self.max_length)
        for name in ("top_k", "no_repeat_ngram"):
            if getattr(self, name) is not None:
                check_at_least(1, **{name: getattr(self, name)})
        temperature = self.temperature
        if temperature is not None and not (
            is_number(temperature) and LEAST_TEMPERATURE <= temperature <= MOST_TEMPERATURE
        ):
            raise ValueError(
                f"temperature must be from {LEAST_TEMPERATURE:g} to {MOST_TEMPERATURE:g}. Received "
                f"{temperature!r}; for the most probable token, leave it out."
            )
        top_p = self.top_p
        if top_p is not None and not (is_number(top_p) and 0 < top_p <= 1):
            raise ValueError(f"top_p must be above 0 and at most 1. Received {top_p!r}.")
        check_above_0(repetition_penalty=self.repetition_penalty)
        check_not_negative(length_penalty=self.length_penalty)
        if self.samples and self.beam_size > 1:
            raise ValueError(
                "Beam search and sampling cannot be combined. Received "
                f"beam_size={self.beam_size} with temperature, top_k or top_p."
            )
        if not self.samples and self.n_best > self.beam_size:
            raise ValueError(
                f"n_best must be at most beam_size. Received n_best={self.n_best}, "
                f"beam_size={self.beam_size}; widen the beam or sample."
            )

    @property
    def samples(self) -> bool:
        """Whether tokens are sampled."""
        return any(part is not None for part in (self.temperature, self.top_k, self.top_p))

"""Decoding: from a model's next-token logits to whole sequences, inside one graph.

It works for any `step(tokens: int32 [rows], state) -> (logits [rows, vocabulary], state)` whose
state is a nest of tensors with rows as their first dimension.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from towers.models.decoding import beam_search, sampling
from towers.models.decoding.options import DecoderStep, Decoding
from towers.models.decoding.rules import Rules
from towers.models.language_model import LanguageModel
from towers.models.recurrent import without_gradients


class Decoded(NamedTuple):
    """Decoded sequences, the best first.

    Attributes:
        ids: int32 [batch, n_best, length], each up to its end token, then padding.
        scores: float32 [batch, n_best]: the log probability; after beam search divided by the
            length penalty. -inf where fewer sequences were found.
        lengths: int32 [batch, n_best], the number of tokens, with the end token.
    """

    ids: tf.Tensor
    scores: tf.Tensor
    lengths: tf.Tensor


def decode(
    step: DecoderStep,
    state: Any,
    decoding: Decoding,
    *,
    start: int,
    end: int,
    forbidden: Sequence[int],
    batch_size: tf.Tensor,
    seed: tf.Tensor,
) -> Decoded:
    """Returns the sequences that the model generates with these options.

    Args:
        step: the model's next-token logits.
        state: before the first token, with `batch_size` rows.
        decoding: the options.
        start: the id that is the input of the first step.
        end: the id that ends a sequence.
        forbidden: ids that are never generated; padding is one of them, or is the end.
        batch_size: number of rows.
        seed: int64 [2], of the samples.
    """
    rules = Rules(decoding, tuple(forbidden), end)
    first = tf.fill([batch_size], start)
    if decoding.beam_size > 1:
        return Decoded(*beam_search.search(step, state, first, rules))
    copies = decoding.n_best if decoding.samples else 1
    state = beam_search.repeat_rows(state, copies)
    first = tf.repeat(first, copies)
    ids, scores, lengths = sampling.generate(step, state, first, rules, seed)
    shape = tf.stack([batch_size, copies])
    return Decoded(
        tf.reshape(ids, tf.concat([shape, [tf.shape(ids)[1]]], 0)),
        tf.reshape(scores, shape),
        tf.reshape(lengths, shape),
    )


def continuation(
    model: LanguageModel, decoding: Decoding, forbidden: Sequence[int], end: int
) -> Callable[[tf.Tensor, tf.Tensor], Decoded]:
    """Returns `continue_prompt(read, seed) -> Decoded`, one graph for every prompt.

    The tokens to read are int32 [length], at least one; the seed is int64 [2]. Forbidden ids are
    never generated. A text ends with the end, or not at all if that is PAD: it continues after the
    end of a line.
    """

    @tf.function(
        input_signature=[tf.TensorSpec([None], tf.int32), tf.TensorSpec([2], tf.int64)],
        autograph=False,
    )
    def continue_prompt(read: tf.Tensor, seed: tf.Tensor) -> Decoded:
        with read_once(model):
            state = tf.cond(
                tf.size(read) > 1,  # No layer takes a text of no tokens.
                lambda: model.hidden(read[None, :-1])[1],
                lambda: model.zero_state(1),
            )
            return decode(
                model.step,
                state,
                decoding,
                start=read[-1],
                end=end,
                forbidden=forbidden,
                batch_size=1,
                seed=seed,
            )

    return continue_prompt


@contextlib.contextmanager
def read_once(model: keras.Model) -> Iterator[None]:
    """The scope of decoding, in which each variable of a model has the value that it has now.

    A loop reads a variable anew in each of its iterations: where the variable is on another device,
    the whole output projection would travel for every token. Reads in front of a loop travel once.

    Nothing in the scope may assign the variables, or be differentiated.
    """
    values = [(variable, tf.identity(variable.value)) for variable in model.weights]
    with without_gradients(), keras.StatelessScope(state_mapping=values):
        yield

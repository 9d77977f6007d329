"""Text that continues a prompt, sampled from a trained language model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import keras
import tensorflow as tf

from towers.models.decoding import Decoded, Decoding, decode, read_once
from towers.scripts.training.recipe import SpecialIds


def generate(
    model: keras.Model,
    decoding: Decoding,
    prompt: Sequence[int],
    *,
    special_ids: SpecialIds,
    seed: int = 0,
) -> list[list[int]]:
    """Returns the continuations of a prompt: `decoding.max_length` ids for each sample.

    Args:
        model: a `LanguageModel`.
        decoding: how to decode; `n_best` samples.
        prompt: ids; the text begins with them.
        special_ids: the ids that stand for no word.
        seed: of the samples.
    """
    read = tf.constant([special_ids.start, *prompt], tf.int32)
    continue_prompt = build_continuation(model, decoding, special_ids)
    decoded = continue_prompt(read, tf.constant([seed, 0], tf.int64))
    return decoded.ids.numpy()[0].tolist()


def build_continuation(
    model: Any, decoding: Decoding, special_ids: SpecialIds
) -> Callable[[tf.Tensor, tf.Tensor], Decoded]:
    """Returns `continue_prompt(read, seed) -> Decoded`, one graph for every prompt.

    The tokens to read are int32 [length], at least one; the seed is int64 [2].
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
                end=special_ids.padding,  # No text ends: it continues after a sentence's end.
                forbidden=special_ids.unspoken,
                batch_size=1,
                seed=seed,
            )

    return continue_prompt

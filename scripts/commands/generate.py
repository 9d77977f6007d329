"""`towers generate`: text that goes on from a prompt, by a language model that was trained."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from typing import Any

import keras
import tensorflow as tf

from towers.data.language import END, PAD, UNKNOWN
from towers.models.decoding import Decoded, Decoding, decode
from towers.scripts.training.trained import open_model

SILENT = (PAD, UNKNOWN)  # Never said.


def run(options: argparse.Namespace) -> int:
    """Prints the prompt and what follows it, once for each sample."""
    decoding = Decoding(
        n_best=options.num_samples,
        temperature=options.temperature,
        top_k=options.top_k,
        top_p=options.top_p,
        max_length=options.length,
    )
    opened = open_model(options.run_dir, options.checkpoint, options, command="generate")
    prompt = opened.text.encode(options.prompt)
    samples = generate(opened.model, decoding, prompt, seed=options.seed)
    for number, ids in enumerate(samples, start=1):
        if len(samples) > 1:
            print(f"[{number}]")
        print(opened.text.decode([*prompt, *ids]))
    return 0


def generate(
    model: keras.Model, decoding: Decoding, prompt: Sequence[int], *, seed: int = 0
) -> list[list[int]]:
    """Returns what follows a prompt: `decoding.max_length` ids for each sample.

    Args:
        model: an `RNNLanguageModel`.
        decoding: how to decode; `n_best` samples.
        prompt: ids; before them the text begins.
        seed: of the samples.
    """
    read = tf.constant([END, *prompt], tf.int32)
    decoded = continue_text(model, decoding)(read, tf.constant([seed, 0], tf.int64))
    return decoded.ids.numpy()[0].tolist()


def continue_text(model: Any, decoding: Decoding) -> Callable[[tf.Tensor, tf.Tensor], Decoded]:
    """Returns `continue_(read, seed) -> Decoded`, one graph for every prompt.

    What is read is int32 [length], at least one token; the seed is int64 [2].
    """

    @tf.function(
        input_signature=[tf.TensorSpec([None], tf.int32), tf.TensorSpec([2], tf.int64)],
        autograph=False,
    )
    def continue_(read: tf.Tensor, seed: tf.Tensor) -> Decoded:
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
            end=PAD,  # A text has no end: it goes on behind the end of a sentence.
            forbidden=SILENT,
            batch_size=1,
            seed=seed,
        )

    return continue_

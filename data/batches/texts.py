"""Texts for language models as batches of streams, of pieces or of sentences.

Every batch begins with (inputs, targets), both int32 [rows, length]: an input is the token before
its target.
"""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from towers.data.batches.buckets import balanced_order, fitted_layout
from towers.ground.arguments import check_at_least
from towers.ground.epochs import Batch, Epochs, assembled, even_layout
from towers.ground.special_ids import PAD
from towers.ground.special_ids import WORD_END as END

Arrays = tuple[np.ndarray, ...]


def stream_batches(
    tokens: np.ndarray,
    num_rows: int,
    num_steps: int,
    *,
    drop_tail: bool = True,
    first: int = END,
) -> Epochs:
    """Returns the batches over a text that is cut into streams; every epoch is the same.

    Row r of every batch belongs to stream r, the r-th of `num_rows` equal parts of the text, and
    goes on where that row of the batch before ended. A batch is (inputs, targets, starts: bool
    [rows]). `starts` is True for rows in which a stream begins: all rows of the first batch.

    Args:
        tokens: integers [n], without padding, which may be memory-mapped: only what a batch needs
            is read.
        num_rows: number of streams, the rows of every batch.
        num_steps: number of tokens of a stream in a batch.
        drop_tail: whether to leave out the tokens at the end that do not fill a batch (as Zaremba
            et al. 2014 do in training); otherwise every token is a target exactly once, and the
            last batch is padded.
        first: the token that is read before the text.

    Raises:
        ValueError: a number is below 1, or the text does not fill a batch.
    """
    check_at_least(1, num_rows=num_rows, num_steps=num_steps)
    least = num_rows * num_steps if drop_tail else 1
    if len(tokens) < least:
        raise ValueError(
            f"A batch of {num_rows} streams with {num_steps} tokens each needs {least} tokens. "
            f"The text has {len(tokens)}; give a longer text, fewer streams (--batch-size) or "
            "fewer tokens (--set num_steps)."
        )
    length = len(tokens) // num_rows if drop_tail else -(-len(tokens) // num_rows)
    num_batches = length // num_steps if drop_tail else -(-length // num_steps)

    def assemble(batch: Batch) -> Arrays:
        steps, streams = np.divmod(batch.own, num_rows)
        within = steps[:, None] * num_steps + np.arange(num_steps)
        indices = streams[:, None] * length + within
        inside = (within < length) & (indices < len(tokens))
        return *inputs_and_targets(tokens, indices, inside, first), steps == 0

    specs = (*pair_of_specs(num_steps), tf.TensorSpec([None], tf.bool))
    layout = even_layout(num_batches * num_rows, num_rows)
    num_targets = num_batches * num_rows * num_steps if drop_tail else len(tokens)
    return Epochs(assembled(assemble, specs), layout, num_targets, shuffle=False)


def piece_batches(
    tokens: np.ndarray,
    batch_size: int,
    num_steps: int,
    *,
    first: int,
    seed: int = 0,
    shuffle: bool = True,
) -> Epochs:
    """Returns the batches over the pieces of a text, each read by itself: no state comes before it.

    Every token of the text is a target exactly once in an epoch.

    Args:
        tokens: integers [n], which may be memory-mapped: only what a batch needs is read.
        batch_size: pieces in a batch; the last one of an epoch may have fewer.
        num_steps: tokens of a piece; the last one may be shorter and is padded.
        first: the token that is read before the text.
        seed: of the order.
        shuffle: whether each epoch has its own order.

    Raises:
        ValueError: a number is too small, or there is no token.
    """
    check_at_least(1, batch_size=batch_size, num_steps=num_steps)
    if not len(tokens):
        raise ValueError("A text must have at least one token. Received none.")

    def assemble(batch: Batch) -> Arrays:
        indices = batch.own[:, None] * num_steps + np.arange(num_steps)
        return inputs_and_targets(tokens, indices, indices < len(tokens), first)

    layout = even_layout(-(-len(tokens) // num_steps), batch_size)
    load = assembled(assemble, pair_of_specs(num_steps))
    return Epochs(load, layout, len(tokens), seed, shuffle)


def inputs_and_targets(
    tokens: np.ndarray, indices: np.ndarray, inside: np.ndarray, first: int
) -> tuple[np.ndarray, np.ndarray]:
    """Returns the tokens before some positions and those at them, int32, padded outside.

    Args:
        tokens: integers [n].
        indices: int64, any shape.
        inside: bool of the same shape, False for padding.
        first: the token before the text.
    """
    targets = tokens[np.where(inside, indices, 0)]
    inputs = tokens[np.where(inside, np.maximum(indices - 1, 0), 0)]
    inputs = np.where(indices == 0, first, inputs)
    return (
        np.where(inside, inputs, PAD).astype(np.int32),
        np.where(inside, targets, PAD).astype(np.int32),
    )


def sentence_batches(
    tokens: np.ndarray, batch_size: int, *, seed: int = 0, shuffle: bool = True
) -> Epochs:
    """Returns the batches over the lines of a text, each as long as its longest line.

    The targets are the sentences, padded with 0 at the end; the inputs are END followed by all but
    their last token. Long and short ones alternate in a batch, so that its shards have about as
    many tokens.

    Args:
        tokens: int32 [n], lines that each end with END.
        batch_size: maximum number of sentences in a batch.
        seed: of the order.
        shuffle: whether each epoch has its own order; otherwise it goes from short to long.

    Raises:
        ValueError: the batch size is below 1, the seed is negative, or there is no whole sentence.
    """
    check_at_least(1, batch_size=batch_size)
    if not len(tokens) or tokens[-1] != END:
        raise ValueError("tokens must consist of lines, the last of which ends with END.")
    ends = np.flatnonzero(tokens == END) + 1
    lengths = np.diff(ends, prepend=0)
    starts = ends - lengths
    layout = fitted_layout(
        np.zeros_like(lengths),
        lengths,
        batch_tokens=batch_size * int(lengths.max()),
        batch_size=batch_size,
    )

    def assemble(batch: Batch) -> Arrays:
        rows = batch.rows[np.argsort(lengths[batch.rows], kind="stable")]
        rows = rows[balanced_order(len(rows))[batch.chosen]]
        within = np.arange(layout.shapes[batch.number, 2])
        inside = within < lengths[rows, None]
        return inputs_and_targets(tokens, starts[rows, None] + within, inside, END)

    load = assembled(assemble, pair_of_specs(None))
    return Epochs(load, layout, len(tokens), seed, shuffle)


def pair_of_specs(num_steps: int | None) -> tuple[tf.TensorSpec, tf.TensorSpec]:
    """Returns the specs of inputs and targets."""
    return (tf.TensorSpec([None, num_steps], tf.int32),) * 2

"""A text as pieces of one length, shuffled: each is read by itself, with no state before it."""

from __future__ import annotations

import dataclasses
import functools
from typing import TYPE_CHECKING

import numpy as np

from towers.data.batching.epochs import (
    ChooseRows,
    bounds_of,
    check_position,
    chosen_rows,
    dataset_of_steps,
)
from towers.data.batching.random_numbers import permutation
from towers.data.batching.row_batches import RowBatches

if TYPE_CHECKING:
    import tensorflow as tf


def piece_batches(
    tokens: np.ndarray,
    batch_size: int,
    num_steps: int,
    *,
    first: int,
    padding: int = 0,
    seed: int = 0,
    shuffle: bool = True,
) -> PieceBatches:
    """Returns `batches(epoch, first_step=0) -> tf.data.Dataset` over the pieces of a text.

    Args:
        tokens: integers [n], which may be memory-mapped: only what a batch needs is read.
        batch_size: pieces in a batch; the last one of an epoch may have fewer.
        num_steps: tokens of a piece; the last one may be shorter and is padded.
        first: the token that is read before the text.
        padding: fills the last piece.
        seed: of the order.
        shuffle: whether each epoch has its own order.

    Raises:
        ValueError: a number is too small, or there is no token.
    """
    for name, number in {"batch_size": batch_size, "num_steps": num_steps}.items():
        if number < 1:
            raise ValueError(f"{name} must be at least 1. Received {number}.")
    if seed < 0:
        raise ValueError(f"seed must not be negative. Received {seed}.")
    if not len(tokens):
        raise ValueError("A text must have at least one token. Received none.")
    return PieceBatches(tokens, batch_size, num_steps, first, padding, seed if shuffle else None)


@dataclasses.dataclass(frozen=True, eq=False)
class PieceBatches(RowBatches):
    """The batches of `piece_batches`; a seed of None is the order of the text."""

    tokens: np.ndarray
    batch_size: int
    num_steps: int
    first: int
    padding: int
    seed: int | None

    def row_counts(self, epoch: int) -> np.ndarray:
        """Returns the number of rows of each batch of an epoch."""
        return np.diff(self._bounds)

    def rows(self, choose: ChooseRows, epoch: int, first_step: int) -> tf.data.Dataset:
        """Returns the chosen rows of each batch of an epoch.

        Each element is (inputs, targets), both int32 [rows, num_steps]: the inputs are the tokens
        before the targets. Every token of the text is a target exactly once in an epoch.
        """
        check_position(epoch, first_step, self.steps_per_epoch)
        order = np.arange(self.num_pieces)
        if self.seed is not None:
            order = permutation(self.num_pieces, seed=self.seed, epoch=epoch)

        chosen = chosen_rows(self._bounds, choose)

        def batch_of_step(step: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            start, stop = chosen[step]
            return self._batch(order[start:stop].astype(np.int64))

        return dataset_of_steps(batch_of_step, first_step, self.steps_per_epoch)

    @functools.cached_property
    def num_pieces(self) -> int:
        """The number of pieces in an epoch."""
        return -(-len(self.tokens) // self.num_steps)

    @property
    def num_examples(self) -> int:
        """The number of tokens in an epoch that are targets."""
        return len(self.tokens)

    @property
    def steps_per_epoch(self) -> int:
        """The number of batches in an epoch."""
        return -(-self.num_pieces // self.batch_size)

    @property
    def _bounds(self) -> np.ndarray:
        return bounds_of(self.num_pieces, self.batch_size)

    def _batch(self, pieces: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        places = pieces[:, None] * self.num_steps + np.arange(self.num_steps)
        return inputs_and_targets(
            self.tokens, places, places < len(self.tokens), self.first, self.padding
        )


def inputs_and_targets(
    tokens: np.ndarray, places: np.ndarray, inside: np.ndarray, first: int, padding: int
) -> tuple[np.ndarray, np.ndarray]:
    """Returns the tokens before some places and those at them, int32, padded outside of the text.

    Args:
        tokens: integers [n].
        places: int64, any shape.
        inside: bool of the same shape, False for padding.
        first: the token before the text.
        padding: the id outside of it.
    """
    targets = tokens[np.where(inside, places, 0)]
    inputs = tokens[np.where(inside, np.maximum(places - 1, 0), 0)]
    inputs = np.where(places == 0, first, inputs)
    return (
        np.where(inside, inputs, padding).astype(np.int32),
        np.where(inside, targets, padding).astype(np.int32),
    )

"""Epochs: the rows of any data in an order of (seed, epoch), in batches, from any step on."""

from __future__ import annotations

import dataclasses
import functools
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from towers.ground.arguments import check_at_least
from towers.ground.random_numbers import BATCH_ORDER_STREAM, index_type, permutation

if TYPE_CHECKING:
    import tensorflow as tf

ChooseRows = Callable[[int], slice]
Load = Callable[["Epoch"], "tf.data.Dataset"]


@dataclasses.dataclass(frozen=True, eq=False)
class Epochs:
    """`batches(epoch, first_step=0) -> tf.data.Dataset` over data whose rows are read in any order.

    Every row comes once in an epoch. The order is a function of (seed, epoch): an epoch goes on at
    any step without the batches before it, and each of several processes reads its own rows only.

    Attributes:
        load: returns the batches of an `Epoch`, the chosen rows of each; see `assembled`.
        layout: which rows share a batch.
        num_examples: how many examples or tokens the losses of an epoch sum over.
        seed: of the order, and of what else is drawn.
        shuffle: whether each epoch has an order of its own; otherwise it is that of the layout.
        source: what the rows are read from, for callers that need more than batches.
        is_fixed: whether a row is the same whenever it is read; it may be augmented otherwise.
    """

    load: Load
    layout: Layout
    num_examples: int
    seed: int = 0
    shuffle: bool = True
    source: Any = None
    is_fixed: bool = True

    def __post_init__(self) -> None:
        check_at_least(0, seed=self.seed)

    def __call__(self, epoch: int, first_step: int = 0) -> tf.data.Dataset:
        """Returns the batches of an epoch from one of its steps on.

        Args:
            epoch: number of the epoch, from 0.
            first_step: number of its batches that were consumed already.

        Raises:
            ValueError: there is no such step in an epoch.
        """
        return self.load(self._epoch(lambda num_rows: slice(0, num_rows), epoch, first_step))

    def take_rows(self, choose: ChooseRows, epoch: int, first_step: int = 0) -> tf.data.Dataset:
        """Returns pairs (the chosen rows of each batch, the number of all its rows, int32 [])."""
        import tensorflow as tf  # Not at the top: data is prepared without TensorFlow.

        own = self._epoch(choose, epoch, first_step)
        counts = self.layout.shapes[own.batches[first_step:], 0].astype(np.int32)
        return tf.data.Dataset.zip((self.load(own), tf.data.Dataset.from_tensor_slices(counts)))

    @property
    def steps_per_epoch(self) -> int:
        """The number of batches in an epoch, the same in each."""
        return self.layout.num_batches

    @property
    def num_rows(self) -> int:
        """The number of rows of a batch, of the largest one."""
        return int(self.layout.shapes[:, 0].max())

    @property
    def order(self) -> dict[str, int]:
        """What the batches of a step follow from, besides the data."""
        return {
            "rows": len(self.layout.rows),
            "batches": self.steps_per_epoch,
            "rows of a batch": self.num_rows,
            "seed": self.seed,
            "shuffle": int(self.shuffle),
        }

    def _epoch(self, choose: ChooseRows, epoch: int, first_step: int) -> Epoch:
        if epoch < 0 or not 0 <= first_step <= self.steps_per_epoch:
            raise ValueError(
                f"An epoch has {self.steps_per_epoch} batches, and epochs count from 0. Received "
                f"epoch={epoch}, first_step={first_step}."
            )
        batches = np.arange(self.steps_per_epoch)
        if self.shuffle and self.layout.batches_move:
            batches = permutation(
                len(batches), seed=self.seed, epoch=epoch, stream=BATCH_ORDER_STREAM
            )
        sizes, indices = np.unique(self.layout.shapes[batches, 0], return_inverse=True)
        slices = [(rows.start, rows.stop) for rows in map(choose, sizes.tolist())]
        chosen = np.array(slices, np.int64).reshape(-1, 2)[indices]
        bounds = np.stack([self.layout.bounds[:-1], self.layout.bounds[1:]], axis=1)[batches]
        order = once(lambda: self._order(epoch))
        return Epoch(epoch, self.seed, first_step, batches, bounds, chosen, order)

    def _order(self, epoch: int) -> np.ndarray:
        """Returns the rows in the order of an epoch."""
        rows, groups = self.layout.rows, self.layout.groups
        if not self.shuffle:
            return rows
        order = permutation(len(rows), seed=self.seed, epoch=epoch)
        if groups is not None:
            order = order[np.argsort(groups[order], kind="stable")]
        return rows[order]


class Layout(NamedTuple):
    """Which rows share a batch, and its shape; the same in every epoch.

    Attributes:
        rows: int [n], each row of the data once, in the order of the batches.
        groups: unsigned [n], ascending: rows (by their index in `rows`) of the same group may
            change places; None: all of them may.
        bounds: int64 [num_batches + 1], where each batch begins in `rows`, and the end.
        shapes: int64 [num_batches, 1 + lengths]: the number of rows of each batch, which is larger
            than what lies in its bounds if it repeats some, and what lengths its rows have.
        batches_move: whether batches change places as well.
    """

    rows: np.ndarray
    groups: np.ndarray | None
    bounds: np.ndarray
    shapes: np.ndarray
    batches_move: bool = False

    @property
    def num_batches(self) -> int:
        """The number of batches, the same in every epoch."""
        return len(self.shapes)


def even_layout(num_rows: int, batch_size: int) -> Layout:
    """Returns batches of one size, but for a smaller last one.

    Raises:
        ValueError: the batch size is below 1.
    """
    check_at_least(1, batch_size=batch_size)
    bounds = np.append(np.arange(0, num_rows, batch_size), num_rows)
    rows = np.arange(num_rows, dtype=index_type(num_rows))
    return Layout(rows, None, bounds, np.diff(bounds)[:, None])


@dataclasses.dataclass(frozen=True, eq=False)
class Epoch:
    """An epoch from one of its steps on, and which rows of its batches are read.

    Attributes:
        number: of the epoch, from 0.
        seed: of all that is drawn.
        first_step: number of its batches that were consumed already.
        batches: int [steps], the number of each step's batch in the layout.
        bounds: int64 [steps, 2], where each step's batch begins and ends in the order.
        chosen: int64 [steps, 2], the first row of each batch that is read, and the end.
        order: returns the rows in the order of the epoch. It is made at the first call, which
            takes a second for millions of rows: a load that calls it only in its batches has its
            spec at once.
    """

    number: int
    seed: int
    first_step: int
    batches: np.ndarray
    bounds: np.ndarray
    chosen: np.ndarray
    order: Callable[[], np.ndarray]

    @property
    def spans(self) -> np.ndarray:
        """Where the rows that are read of each batch begin and end in the order: [steps, 2]."""
        return self.bounds[:, :1] + self.chosen

    def steps(self) -> tf.data.Dataset:
        """Returns the steps that are left, int64 scalars."""
        import tensorflow as tf

        return tf.data.Dataset.range(self.first_step, len(self.batches))

    def slices(self) -> tf.data.Dataset:
        """Returns the spans of the steps that are left, pairs of int64 scalars."""
        import tensorflow as tf

        return tf.data.Dataset.from_tensor_slices(tuple(self.spans[self.first_step :].T))

    def batch(self, step: int) -> Batch:
        """Returns the rows of a step."""
        start, stop = self.bounds[step]
        return Batch(self.batches[step], self.order()[start:stop], slice(*self.chosen[step]))


class Batch(NamedTuple):
    """The rows of a step.

    Attributes:
        number: of the batch in the layout.
        rows: int [n], all rows of the batch.
        chosen: which of them are read.
    """

    number: int
    rows: np.ndarray
    chosen: slice

    @property
    def own(self) -> np.ndarray:
        """The rows that are read, int64."""
        return self.rows[self.chosen].astype(np.int64)


def assembled(
    assemble: Callable[[Batch], Sequence[np.ndarray]],
    specs: Any,
    *,
    parallel: int | None = 2,
    ahead: int = 4,
) -> Load:
    """Returns what loads an epoch by a function of arrays.

    Args:
        assemble: from a batch to the arrays of the rows that are read.
        specs: the structure of a batch, with a `tf.TensorSpec` for each of the arrays.
        parallel: batches assembled at the same time; None: one after the other.
        ahead: batches kept ready for the training.
    """

    def load(epoch: Epoch) -> tf.data.Dataset:
        import tensorflow as tf

        parts = tf.nest.flatten(specs)
        dtypes = [part.dtype for part in parts]
        several = (
            {} if parallel is None else {"num_parallel_calls": parallel, "deterministic": True}
        )

        @tf.autograph.experimental.do_not_convert
        def batch_of_step(step: tf.Tensor) -> Any:
            arrays = tf.numpy_function(lambda step: assemble(epoch.batch(step)), [step], dtypes)
            shapes = (part.shape for part in parts)
            return tf.nest.pack_sequence_as(specs, list(map(tf.ensure_shape, arrays, shapes)))

        return epoch.steps().map(batch_of_step, **several).prefetch(ahead)

    return load


def once(make: Callable[[], np.ndarray]) -> Callable[[], np.ndarray]:
    """Returns a function that makes a value at its first call, for all threads that call it."""
    lock, made = threading.Lock(), functools.cache(make)

    def value() -> np.ndarray:
        with lock:
            return made()

    return value

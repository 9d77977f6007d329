"""Shards: a global batch cut by rows, one shard per tower, of which a process may read its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

import tensorflow as tf

from towers.ground.epochs import ChooseRows, Epochs
from towers.travel.pairs import part_sizes

Batch = Any  # Any nest of tensors whose first dimension counts the examples.
DIFFERING_ROWS = "All tensors of a batch must have the same number of rows"
DIFFERING_CALLS = "Towers cut tensors alike that have equally many rows when they first meet"
NO_ROWS = "A batch without examples"
NUMBERS = (  # What an array of Python's may hold.
    *(tf.bool, tf.float16, tf.bfloat16, tf.float32, tf.float64, tf.complex64, tf.complex128),
    *(tf.int8, tf.int16, tf.int32, tf.int64, tf.uint8, tf.uint16, tf.uint32, tf.uint64),
)
CUT_AT_ONCE = 2  # Batches. Cutting is little work, and each result is a whole batch in memory.

Batches = Callable[[int, int], tf.data.Dataset]


class Shard(NamedTuple):
    """A tower's part of a batch.

    Attributes:
        batch: the same nest as the global batch, with this tower's rows. An empty shard holds the
            batch's first example, since layers fail on zero rows.
        size: int32 scalar, the number of rows that count: 0 for an empty shard.
    """

    batch: Batch
    size: tf.Tensor


def split(dataset: tf.data.Dataset, num_towers: int, own: slice = slice(None)) -> tf.data.Dataset:
    """Returns a data set of `num_towers`-tuples of `Shard` from one of global batches.

    Args:
        dataset: the global batches.
        num_towers: the number of shards into which each is cut.
        own: which of the shards are in the tuples, by default all.

    Raises:
        ValueError: the tensors of a batch have no rows, or different numbers of rows. If static
            shapes do not show it, iterating raises `tf.errors.InvalidArgumentError`.
    """
    check_dataset(dataset)
    check_batch_spec(dataset.element_spec)
    is_tuple = type(dataset.element_spec) is tuple  # `map` passes a tuple as several arguments.

    @tf.autograph.experimental.do_not_convert  # Conversion would dominate the start of an epoch.
    def cut(*batch: Any) -> tuple[Shard, ...]:
        whole = batch if is_tuple else batch[0]
        check_rows(whole)
        whole = tf.nest.map_structure(with_own_memory, whole, expand_composites=True)
        return split_batch(whole, num_towers)[own]

    return dataset.map(cut, num_parallel_calls=CUT_AT_ONCE, deterministic=True)


def check_batch_spec(spec: Any) -> None:
    """Raises ValueError unless every tensor of a batch has rows, the same number in each."""
    for part in tf.nest.flatten(spec):
        if isinstance(part, tf.NoneTensorSpec):
            raise ValueError(
                "A batch must be made of tensors. Received None in the place of one in "
                f"{spec}; leave it out of the data set, and of what the tower function unpacks."
            )
        if isinstance(part, tf.SparseTensorSpec):
            raise ValueError(
                "A batch must be made of tensors that can be cut by rows. Received a sparse one: "
                f"{part}; call `dataset.map` with tf.sparse.to_dense before, or give the ids and "
                "values of each example as dense tensors."
            )
        if isinstance(part, tf.data.DatasetSpec):
            raise ValueError(
                "A batch must be made of tensors. Received a data set in the place of one, as "
                "`window` makes them; call `dataset.batch(...)` instead."
            )
    shapes = [part.shape for part in tf.nest.flatten(spec)]
    if not shapes or any(shape.rank == 0 for shape in shapes):
        raise ValueError(
            "A batch must be made of tensors whose first dimension counts the examples. "
            f"Received {spec}; call `dataset.batch(...)` before the data set is split."
        )
    rows = {shape[0] for shape in shapes if shape.rank is not None} - {None}
    if len(rows) > 1:
        raise ValueError(f"{DIFFERING_ROWS}. Received first dimensions {sorted(rows)} in {spec}.")


def check_rows(batch: Batch) -> None:
    """Adds ops that check that a batch has rows, and all its tensors the same number.

    It adds nothing that the static shapes show, or that a single tensor cannot miss.
    """
    parts = tf.nest.flatten(batch)
    shapes = [part.shape for part in parts]
    if shapes[0].rank is None or not shapes[0][0]:
        message = (
            f"{NO_ROWS} has no loss and no statistics (a filter after `batch`, or an "
            "empty file, makes some). Let the data set leave it out."
        )
        check(tf.shape(parts[0])[0] > 0, message)
    if len(parts) > 1 and any(shape.rank is None or shape[0] is None for shape in shapes):
        rows = tf.stack([tf.shape(part)[0] for part in parts])
        message = (
            f"{DIFFERING_ROWS}. Received the numbers below "
            f"for tensors of shapes {', '.join(map(str, shapes))}. Let the data set give every "
            "example a row in each of them."
        )
        check(tf.reduce_all(rows == rows[0]), message, rows)


def check(condition: tf.Tensor, message: str, *facts: tf.Tensor) -> tf.Operation:
    """Returns an op that raises `tf.errors.InvalidArgumentError` unless a condition holds.

    `tf.debugging` would trace a conditional for it, in each epoch anew.
    """
    return tf.raw_ops.Assert(condition=condition, data=[message, *facts], summarize=-1)


def with_own_memory(tensor: tf.Tensor) -> tf.Tensor:
    """Returns a copy of a tensor of numbers; another one is returned as it is.

    The output of a Python function may share the memory of a user's array. TensorFlow never
    computes in its place, but does in the place of a slice of it, and would overwrite the array.
    """
    return tf.raw_ops.DeepCopy(x=tensor) if tensor.dtype in NUMBERS else tensor


@tf.RegisterGradient("DeepCopy")
def gradient_of_copy(_: tf.Operation, gradient: tf.Tensor) -> tf.Tensor:
    """Returns the gradient of a copy, for loops of TensorFlow's and derivatives in forward mode."""
    return gradient


def split_batch(batch: Batch, num_towers: int) -> tuple[Shard, ...]:
    """Returns one shard per tower, in row order; their sizes differ by at most one.

    >>> [shard.batch.numpy().tolist() for shard in split_batch(tf.range(5), 2)]
    [[0, 1, 2], [3, 4]]
    """
    num_examples = tf.shape(tf.nest.flatten(batch)[0])[0]
    if num_towers == 1:  # Avoids a copy.
        return (Shard(batch, num_examples),)
    return cut_rows(batch, part_sizes(num_examples, num_towers))


def cut_rows(batch: Batch, sizes: Sequence[tf.Tensor]) -> tuple[Shard, ...]:
    """Returns a shard of each size, in row order."""
    shards, start = [], tf.zeros([], tf.int32)
    for size in sizes:
        shards.append(Shard(take_rows(batch, start, size), size))
        start += size
    return tuple(shards)


def take_rows(batch: Batch, start: tf.Tensor, size: tf.Tensor) -> Batch:
    """Returns `size` rows of every tensor from row `start` on, or the first row if `size` is 0."""
    start = tf.where(size > 0, start, 0)
    stop = start + tf.maximum(size, 1)
    return tf.nest.map_structure(lambda tensor: tensor[start:stop], batch)


@runtime_checkable
class RowBatches(Protocol):
    """Batches that can be read in part, so that a process reads no rows of other processes."""

    def __call__(self, epoch: int, first_step: int = 0) -> tf.data.Dataset:
        """Returns the global batches of an epoch from one of its steps on."""

    def take_rows(self, choose: ChooseRows, epoch: int, first_step: int = 0) -> tf.data.Dataset:
        """Returns pairs (some rows of each global batch, the number of all its rows).

        Args:
            choose: `choose(num_rows)` returns a slice of at least one of a batch's rows, with its
                start and its stop.
            epoch: number of the epoch, from 0.
            first_step: number of its batches that were consumed already.

        Returns:
            A data set of the same batches in the same order. The rows are, bit for bit, those of
            the global batch, and as long as its longest; the number is an int32 scalar.
        """


class OwnRows(NamedTuple):
    """The towers of one process among those of all."""

    first: int
    num_towers: int
    total: int

    def sizes(self, num_rows: Any) -> list[Any]:
        """Returns the size of each of its shards, given the number of rows of a global batch."""
        return part_sizes(num_rows, self.total)[self.towers]

    @property
    def towers(self) -> slice:
        """Its towers among those of all processes."""
        return slice(self.first, self.first + self.num_towers)

    def start(self, num_rows: Any) -> Any:
        """Returns the number of rows of a global batch before its own."""
        return sum(part_sizes(num_rows, self.total)[: self.first])

    def choose(self, num_rows: int) -> slice:
        """Returns the rows of its shards; the first row of the batch if all of them are empty."""
        start, size = self.start(num_rows), sum(self.sizes(num_rows))
        return slice(start, start + size) if size else slice(0, 1)

    def shards(self, batches: RowBatches, epoch: int, first_step: int) -> tf.data.Dataset:
        """Returns its shards of global batches; it reads its own rows only."""
        dataset = batches.take_rows(self.choose, epoch, first_step)
        check_batch_spec(dataset.element_spec[0])

        @tf.autograph.experimental.do_not_convert  # Conversion would dominate an epoch's start.
        def cut(rows: Batch, num_rows: tf.Tensor) -> tuple[Shard, ...]:
            sizes = self.sizes(num_rows)
            return (Shard(rows, sizes[0]),) if self.num_towers == 1 else cut_rows(rows, sizes)

        return dataset.map(cut, num_parallel_calls=CUT_AT_ONCE, deterministic=True)


def shard_specs(batches: Batches | tf.data.Dataset, num_towers: int) -> tuple[Shard, ...]:
    """Returns the specs of the shards into which `num_towers` towers split these batches."""
    check_batches(batches)
    dataset = batches if isinstance(batches, tf.data.Dataset) else batches(0, 0)
    check_dataset(dataset)
    specs: tuple[Shard, ...]
    if all(isinstance(part, tf.TensorSpec) for part in tf.nest.flatten(dataset.element_spec)):
        check_batch_spec(dataset.element_spec)
        specs = (Shard(dataset.element_spec, tf.TensorSpec([], tf.int32)),) * num_towers
    else:
        specs = split(dataset, num_towers).element_spec
    return tf.nest.map_structure(any_number_of_rows, specs)


def check_shards(dataset: tf.data.Dataset, specs: tuple[Shard, ...]) -> None:
    """Raises ValueError unless a step that was built for these specs takes a data set's shards.

    A call of several updates has the tensors of its batches alone, by their order.
    """
    received = dataset.element_spec

    def check(expected: tf.TypeSpec, given: tf.TypeSpec) -> None:
        if not expected.is_compatible_with(given):
            raise ValueError(f"{expected} takes no {given}.")

    try:
        tf.nest.map_structure(check, specs, received)
    except (TypeError, ValueError):
        raise ValueError(
            "The batches are not like those that the step was built for. Received "
            f"{received[0].batch}; expected {specs[0].batch}. Build the step with these batches, "
            "or change them (`dataset.map`)."
        ) from None


def order_of(batches: Batches) -> dict[str, int]:
    """Returns what the batches of a step follow from, besides the data, as far as it is known."""
    return batches.order if isinstance(batches, Epochs) else {}


def check_batches(batches: object) -> None:
    """Raises ValueError for what is neither a data set nor a function of the epoch."""
    if not isinstance(batches, tf.data.Dataset) and not callable(batches):
        raise ValueError(
            "batches must be a function batches(epoch, first_step) that returns a tf.data.Dataset "
            f"of global batches, or such a data set. Received {type(batches).__name__}; "
            "towers.batches_from(data, batch_size) makes one of arrays."
        )


def check_dataset(dataset: object) -> None:
    """Raises ValueError unless what a function of the epoch returned is a data set."""
    if not isinstance(dataset, tf.data.Dataset):
        raise ValueError(
            "A function of the epoch must return a tf.data.Dataset of global batches. Received "
            f"{type(dataset).__name__} from it."
        )


def any_number_of_rows(spec: tf.TypeSpec) -> tf.TypeSpec:
    """Returns the spec with its first dimension unknown, so that one trace takes every batch."""
    if isinstance(spec, tf.RaggedTensorSpec) and spec.shape.rank:
        shape = [None, *spec.shape[1:]]
        return tf.RaggedTensorSpec(shape, spec.dtype, spec.ragged_rank, spec.row_splits_dtype)
    if not isinstance(spec, tf.TensorSpec) or spec.shape.rank in (0, None):
        return spec
    return tf.TensorSpec([None, *spec.shape[1:]], spec.dtype)

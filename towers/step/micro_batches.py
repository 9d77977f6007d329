"""Micro-batches: a shard cut by rows, the seed of each, and their sums, one after the other.

The sums are made in a loop of the graph, so that a step has the same size for any number of
micro-batches. Random numbers are a function of (seed, step, part): no generator keeps a state
between steps.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from towers.batches.shards import Shard, take_rows
from towers.step.synchronized import Replica
from towers.travel.packing import Nest
from towers.travel.pairs import first_half
from towers.variables.own_draws import fold_in

Index = Any  # The number of a micro-batch within its shard: an int, or an int32 scalar in a loop.
Add = Callable[[Any, Any], Any]


class Part(NamedTuple):
    """A micro-batch as one part of the global batch.

    Attributes:
        tower: the tower's number among the towers of all processes.
        seed: int64 [2], the seed of its random numbers.
        is_first: bool scalar, whether it is the first part of the global batch.
        gives_averages: whether its moving averages count, by the policy for BatchNorm.
        replica: the tower as one that adds sums of synchronised layers; None if it adds none.
    """

    tower: int
    seed: tf.Tensor
    is_first: tf.Tensor
    gives_averages: bool = True
    replica: Replica | None = None


def part_of(
    tower: int,
    number: Any,
    seed: int,
    step: tf.Tensor,
    *,
    gives_averages: bool = True,
    replica: Replica | None = None,
) -> Part:
    """Returns a part of the global batch.

    Micro-batches are numbered across all towers, so a micro-batch has the same seed on any tower.

    Args:
        tower, gives_averages, replica: as in `Part`.
        number: its number within the global batch, from 0; an int, or an int32 scalar.
        step: the step's number, an int64 scalar.
    """
    own_seed = fold_in(fold_in(tf.constant([seed, 0], tf.int64), step), number)
    is_first = tf.constant(number == 0) if isinstance(number, int) else tf.equal(number, 0)
    return Part(tower, own_seed, is_first, gives_averages, replica)


def seed_states(seed: tf.Tensor, num_generators: int) -> list[tf.Tensor]:
    """Returns a state for each seed generator, int64 [2], all different.

    A generator adds one to the second number at each draw, so the first numbers must differ:
    otherwise the second draw of one generator would equal the first draw of the next.
    """
    return [fold_in(fold_in(seed, generator), 0) for generator in range(num_generators)]


def micro_batches_of(shard: Shard, count: int) -> Callable[[Index], Shard]:
    """Returns the function that returns a micro-batch of a shard; those of an empty one are empty.

    They are the parts into which `split_batch` cuts a batch.
    """
    if count == 1:
        return lambda index: shard
    starts, sizes = starts_and_sizes(tf.shape(tf.nest.flatten(shard.batch)[0])[0], count)

    def cut(index: Index) -> Shard:
        start, size = starts[index], sizes[index]
        return Shard(take_rows(shard.batch, start, size), tf.minimum(size, shard.size))

    return cut


def starts_and_sizes(num_rows: tf.Tensor, count: int) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the first row and the size of each of `count` parts, as `part_sizes` cuts.

    >>> [part.numpy().tolist() for part in starts_and_sizes(tf.constant(10), 4)]
    [[0, 3, 5, 8], [3, 2, 3, 2]]
    """
    count = odd = int(count)  # TensorFlow would take a number of NumPy's for an int64.
    while odd % 2 == 0:
        odd //= 2
    numbers = tf.range(odd)
    sizes = (num_rows + odd - 1 - numbers) // odd
    starts = numbers * (num_rows // odd) + tf.minimum(numbers, num_rows % odd)
    while odd < count:
        halves = sizes // 2
        starts = tf.reshape(tf.stack([starts, starts + sizes - halves], axis=1), [-1])
        sizes = tf.reshape(tf.stack([sizes - halves, halves], axis=1), [-1])
        odd *= 2
    return starts, sizes


def sum_one_by_one(
    run: Callable[[Index], Any], count: int, add: Add, *, in_pairs: bool, in_loop: bool
) -> Any:
    """Returns the sum of `run(0)`, `run(1)`, ...; only one runs at a time.

    Args:
        run: returns a nest of tensors, `tf.IndexedSlices` and None, the same for each index.
        in_pairs: whether neighbours are added first, then neighbouring sums, as `add_in_pairs`
            does. A running sum needs less memory.
        in_loop: whether the graph has a loop; otherwise it has `run` `count` times.
    """
    if not in_loop or count < 3:  # A loop takes two: its first run shows what its sums are.
        return sum_unrolled(run, range(count), add, in_pairs=in_pairs)
    first = Nest(run(0))
    with tf.control_dependencies(first.tensors):
        start = tf.identity(1)
    loop = sum_in_pairs if in_pairs else running_sum
    return loop(run, start, count, add, first)


def sum_unrolled(run: Callable[[Index], Any], indices: range, add: Add, *, in_pairs: bool) -> Any:
    """Returns the sum in a graph without a loop."""
    if len(indices) == 1:
        return run(indices[0])
    middle = first_half(len(indices)) if in_pairs else len(indices) - 1
    first = sum_unrolled(run, indices[:middle], add, in_pairs=in_pairs)
    # One after the other: only one micro-batch's activations are in memory at a time.
    with tf.control_dependencies(Nest(first).tensors):
        return add(first, sum_unrolled(run, indices[middle:], add, in_pairs=in_pairs))


def running_sum(
    run: Callable[[Index], Any], start: tf.Tensor, count: int, add: Add, first: Nest
) -> Any:
    """Returns the sum to which each run is added in turn, from the `start` after the first one."""

    def body(index: tf.Tensor, *total: tf.Tensor) -> list[tf.Tensor]:
        return [index + 1, *first.flatten(add(first.pack(total), run(index)))]

    _, *total = tf.while_loop(
        lambda index, *_: index < count,
        body,
        [start, *first.tensors],
        shape_invariants=[tf.TensorShape([]), *(tensor.shape for tensor in first.tensors)],
        parallel_iterations=1,
        name="micro_batches",
    )
    return first.pack(total)


def sum_in_pairs(
    run: Callable[[Index], Any], start: tf.Tensor, count: int, add: Add, first: Nest
) -> Any:
    """Returns the sum in which neighbours are added first; arguments as in `running_sum`.

    The sums of 1, 2, 4, ... parts that wait for their neighbours are kept as the digits of a
    binary counter: the sum of 2^k parts waits if the number of parts so far has the digit k.
    """
    digits = written([places_for(one, count) for one in first.tensors], 0, first.tensors)

    def body(index: tf.Tensor, *digits: tf.TensorArray) -> list[Any]:
        def carry(place: tf.Tensor, *part: tf.Tensor) -> list[tf.Tensor]:
            waiting = first.pack(one.read(place) for one in digits)
            return [place + 1, *first.flatten(add(waiting, first.pack(part)))]

        place, *part = tf.while_loop(
            lambda place, *_: tf.bitwise.right_shift(index, place) % 2 == 1,
            carry,
            [tf.constant(0), *first.flatten(run(index))],
            shape_invariants=[tf.TensorShape([]), *(tensor.shape for tensor in first.tensors)],
            parallel_iterations=1,
        )
        return [index + 1, *written(digits, place, part)]

    _, *digits = tf.while_loop(
        lambda index, *_: index < count,
        body,
        [start, *digits],
        parallel_iterations=1,
        name="micro_batches",
    )
    places = [place for place in range(count.bit_length()) if count >> place & 1]
    total, *others = [first.pack(one.read(place) for one in digits) for place in places]
    for other in others:
        total = add(other, total)
    return total


def places_for(tensor: tf.Tensor, count: int) -> tf.TensorArray:
    """Returns places for the sums of 1, 2, 4, ... of so many tensors like this."""
    return tf.TensorArray(
        tensor.dtype, count.bit_length(), clear_after_read=False, infer_shape=False,
        element_shape=tensor.shape,
    )  # fmt: skip


def written(digits: Any, place: Index, total: Sequence[tf.Tensor]) -> list[tf.TensorArray]:
    """Returns the places, one array for each tensor, with the tensors of a sum at one of them."""
    return [one.write(place, tensor) for one, tensor in zip(digits, total, strict=True)]

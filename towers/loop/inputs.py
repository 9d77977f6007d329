"""How a global batch reaches the towers: cut into shards, each on its device a step ahead."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, TypeVar

import tensorflow as tf

Batch = Any  # Any nest of tensors whose first dimension counts the examples.
Batches = Callable[[int, int], tf.data.Dataset]
T = TypeVar("T", int, tf.Tensor)


class Shard(NamedTuple):
    """A tower's part of a batch.

    Attributes:
        batch: the same nest as the global batch, with the rows of this tower. An empty shard
            holds the batch's first example instead of none, since layers fail on zero rows.
        size: int32 scalar, how many rows count: 0 for an empty shard.
    """

    batch: Batch
    size: tf.Tensor


def split(dataset: tf.data.Dataset, num_towers: int) -> tf.data.Dataset:
    """Returns a data set of `num_towers`-tuples of `Shard` from one of global batches.

    Raises:
        ValueError: the tensors of a batch have no rows, or different numbers of them. What only
            shows while the data set runs is then raised as `tf.errors.InvalidArgumentError`.
    """
    check_batch_spec(dataset.element_spec)
    is_tuple = type(dataset.element_spec) is tuple  # Then each part is an argument of its own.

    @tf.autograph.experimental.do_not_convert  # Which would take longer than the rest, each epoch.
    def cut(*batch: Any) -> tuple[Shard, ...]:
        whole = batch if is_tuple else batch[0]
        check_rows(whole)
        return split_batch(whole, num_towers)

    return dataset.map(cut, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True)


def check_rows(batch: Batch) -> None:
    """Adds to a data set's graph a check that all tensors of a batch have the same number of rows.

    Nothing is added where the shapes tell, or where there is only one tensor.
    """
    parts = tf.nest.flatten(batch)
    shapes = [part.shape for part in parts]
    if len(parts) > 1 and any(shape.rank is None or shape[0] is None for shape in shapes):
        rows = tf.stack([tf.shape(part)[0] for part in parts])
        message = (
            "All tensors of a batch must have the same number of rows. Received the numbers in x "
            f"below for tensors of shapes {', '.join(map(str, shapes))}. Let the data set give "
            "every example a row in each of them."
        )
        tf.debugging.assert_equal(rows, rows[0], message, summarize=len(parts))


def split_batch(batch: Batch, num_towers: int) -> tuple[Shard, ...]:
    """Returns one shard per tower, in order, whose sizes differ by at most one.

    >>> [shard.batch.numpy().tolist() for shard in split_batch(tf.range(5), 2)]
    [[0, 1, 2], [3, 4]]
    """
    num_examples = tf.shape(tf.nest.flatten(batch)[0])[0]
    if num_towers == 1:  # Nothing to cut, and so nothing to copy.
        return (Shard(batch, num_examples),)
    shards, start = [], tf.zeros([], tf.int32)
    for size in part_sizes(num_examples, num_towers):
        shards.append(Shard(take_rows(batch, start, size), size))
        start += size
    return tuple(shards)


def part_sizes(size: T, num_parts: int) -> list[T]:
    """Returns the sizes of parts that differ by at most one, of a number or an integer scalar.

    Parts come in halves of halves as far as that goes, so that a part of a part is the same
    whoever cuts: eight parts, or four parts of two parts each.

    >>> part_sizes(10, 4), part_sizes(5, 3)
    ([3, 2, 3, 2], [2, 2, 1])
    """
    if num_parts % 2 == 1:
        return [(size + num_parts - 1 - index) // num_parts for index in range(num_parts)]
    return [
        part for both in part_sizes(size, num_parts // 2) for part in (both - both // 2, both // 2)
    ]


def take_rows(batch: Batch, start: tf.Tensor, size: tf.Tensor) -> Batch:
    """Returns `size` rows of every tensor from row `start` on, or the first row if `size` is 0."""
    start = tf.where(size > 0, start, 0)
    stop = start + tf.maximum(size, 1)
    return tf.nest.map_structure(lambda tensor: tensor[start:stop], batch)


def check_batch_spec(spec: Any) -> None:
    """Raises ValueError unless every tensor of a batch has rows, the same number in each."""
    shapes = [part.shape for part in tf.nest.flatten(spec)]
    if not shapes or any(shape.rank == 0 for shape in shapes):
        raise ValueError(
            "A batch must be made of tensors whose first dimension counts the examples. "
            f"Received {spec}; call `dataset.batch(...)` before the data set is split."
        )
    rows = {shape[0] for shape in shapes if shape.rank is not None} - {None}
    if len(rows) > 1:
        raise ValueError(
            "All tensors of a batch must have the same number of rows. "
            f"Received first dimensions {sorted(rows)} in {spec}."
        )


def shard_specs(batches: Batches | tf.data.Dataset, num_towers: int) -> tuple[Shard, ...]:
    """Returns the specs of the shards into which `num_towers` towers split these batches."""
    dataset = batches if isinstance(batches, tf.data.Dataset) else batches(0, 0)
    specs = split(dataset, num_towers).element_spec
    return tf.nest.map_structure(any_number_of_rows, specs)


def any_number_of_rows(spec: tf.TypeSpec) -> tf.TypeSpec:
    """Returns the spec with its first dimension unknown, so that one trace takes every batch."""
    if not isinstance(spec, tf.TensorSpec) or spec.shape.rank in (0, None):
        return spec
    return tf.TensorSpec([None, *spec.shape[1:]], spec.dtype)


def batches_from(dataset: tf.data.Dataset) -> Batches:
    """Returns `batches(epoch, first_step)` over a user's own data set of global batches.

    Every epoch iterates the data set anew and a resumed one skips what was consumed, which is
    exact as long as the data set yields the same batches in each iteration of an epoch.
    """

    def batches(epoch: int, first_step: int = 0) -> tf.data.Dataset:
        return dataset.skip(first_step)

    return batches


def open_feed(dataset: tf.data.Dataset, devices: Sequence[str]) -> Feed:
    """Returns the shards of a data set, in order, each on its tower's device a step ahead.

    Use it as a context manager, so that a thread of it ends with the epoch.

    Args:
        dataset: a data set of tuples with one `Shard` per device, as `split` returns.
        devices: the towers' devices.
    """
    on_host = all(tf.DeviceSpec.from_string(device).device_type == "CPU" for device in devices)
    return HostFeed(dataset, devices) if on_host else DeviceFeed(dataset, devices)


class Arrival(NamedTuple):
    """What a feed takes in: the shards of a batch, the end, or an error.

    Attributes:
        shards: on their devices; None at the end of the data set or for an error.
        ready: when each tower's shard was ready, by `time.perf_counter`.
        error: what the data set raised.
    """

    shards: tuple[Shard, ...] | None = None
    ready: Sequence[float] = ()
    error: BaseException | None = None


class Feed:
    """An iterator of shard tuples that knows whether one is left and how long each was waited for.

    An error in the data set is raised by the `next` that would have returned the batch.

    Attributes:
        waits: seconds that the last `next` waited for each tower's shard.
    """

    def __init__(self, devices: Sequence[str]):
        self.waits: Sequence[float] = [0.0] * len(devices)
        self._devices = list(devices)
        self._next: Arrival | None = None
        self._next_waits: Sequence[float] = ()

    def __enter__(self) -> Feed:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __iter__(self) -> Iterator[tuple[Shard, ...]]:
        return self

    def __next__(self) -> tuple[Shard, ...]:
        arrival = self._peek()
        if arrival.error is not None:
            raise arrival.error
        if arrival.shards is None:
            raise StopIteration
        self._next, self.waits = None, self._next_waits
        return arrival.shards

    def exhausted(self) -> bool:
        """Returns whether no batch is left, which waits until the next one is known."""
        arrival = self._peek()
        return arrival.shards is None and arrival.error is None

    def close(self) -> None:
        """Ends what runs for the feed."""

    def _peek(self) -> Arrival:
        if self._next is None:
            asked = time.perf_counter()
            self._next = self._take()
            self._next_waits = [max(0.0, ready - asked) for ready in self._next.ready]
        return self._next

    def _take(self) -> Arrival:
        raise NotImplementedError


class HostFeed(Feed):
    """The feed of towers on the CPU: `tf.data` is a step ahead by itself, and nothing travels.

    A thread that iterates in Python would take cores from the towers that compute.
    """

    def __init__(self, dataset: tf.data.Dataset, devices: Sequence[str]):
        super().__init__(devices)
        self._dataset = dataset.prefetch(1)
        self._iterator: Iterator[tuple[Shard, ...]] | None = None

    def _take(self) -> Arrival:
        try:
            if self._iterator is None:  # Only now, so that its start counts as waiting.
                self._iterator = iter(self._dataset)
            return Arrival(next(self._iterator), [time.perf_counter()] * len(self._devices))
        except StopIteration:
            return Arrival()
        except Exception as error:  # Whatever it is, it belongs to the `next` of this batch.
            return Arrival(error=error)


class DeviceFeed(Feed):
    """The feed of towers on accelerators: a host thread puts each shard on its device in advance.

    Args:
        dataset, devices: as in `open_feed`.
        ahead: how many steps the thread is ahead of the one that takes the shards.
    """

    def __init__(self, dataset: tf.data.Dataset, devices: Sequence[str], *, ahead: int = 1):
        super().__init__(devices)
        self._queue: queue.Queue[Arrival] = queue.Queue(maxsize=ahead)
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._fill, args=(dataset,), daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Ends the thread."""
        self._closed.set()
        while self._thread.is_alive():
            self._drain()
            self._thread.join(timeout=0.05)

    def _take(self) -> Arrival:
        return self._queue.get()

    def _drain(self) -> None:
        while not self._queue.empty():
            self._queue.get_nowait()

    def _fill(self, dataset: tf.data.Dataset) -> None:
        try:
            for shards in dataset:
                if self._closed.is_set():
                    return
                self._queue.put(self._place(shards))
            self._queue.put(Arrival())
        except BaseException as error:  # Whatever it is, it belongs to the thread that waits.
            self._queue.put(Arrival(error=error))

    def _place(self, shards: tuple[Shard, ...]) -> Arrival:
        placed, ready = [], []
        for device, shard in zip(self._devices, shards, strict=True):
            with tf.device(device):
                placed.append(tf.nest.map_structure(tf.identity, shard))
            ready.append(time.perf_counter())
        return Arrival(tuple(placed), ready)

"""Input: puts each shard on its tower's device one step ahead."""

from __future__ import annotations

import contextlib
import queue
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from towers.loop.requests import take
from towers.step.shards import Batches, Shard

PATIENCE = 1.0  # Seconds for which closing a feed waits for its thread.


def batches_from(dataset: tf.data.Dataset | Callable[[int], tf.data.Dataset]) -> Batches:
    """Returns `batches(epoch, first_step)` over your own data set of global batches.

    A resumed epoch skips the consumed batches, which is exact if the data set yields the same
    batches in every iteration.

    Args:
        dataset: the batches of every epoch; or, for an order that differs from epoch to epoch, a
            function that returns those of an epoch (from 0), the same ones whenever it is called.

    Raises:
        ValueError: it is neither of them.

    >>> numbers = tf.data.Dataset.range(4)
    >>> batches = batches_from(lambda epoch: numbers.shuffle(4, seed=epoch).batch(2))
    >>> [batch.numpy().tolist() for batch in batches(7, 1)] == [
    ...     batch.numpy().tolist() for batch in batches(7, 0)
    ... ][1:]
    True
    """
    if isinstance(dataset, tf.data.Dataset):
        warn_of_shuffles(dataset)
    elif not callable(dataset):
        raise ValueError(
            "batches_from takes a tf.data.Dataset of global batches, or a function that returns "
            f"that of an epoch. Received {type(dataset).__name__}; for arrays, use "
            "tf.data.Dataset.from_tensor_slices((x, y)).batch(batch_size)."
        )

    def batches(epoch: int, first_step: int = 0) -> tf.data.Dataset:
        of_epoch = dataset if isinstance(dataset, tf.data.Dataset) else dataset(epoch)
        return of_epoch.skip(first_step) if first_step else of_epoch

    return batches


def as_batches(batches: Batches | tf.data.Dataset) -> Batches:
    """Returns the function of a data set, or the function itself; raises ValueError for neither."""
    if isinstance(batches, tf.data.Dataset):
        return batches_from(batches)
    if callable(batches):
        return batches
    raise ValueError(
        "batches must be a function batches(epoch, first_step) that returns a tf.data.Dataset of "
        f"global batches, or such a data set. Received {type(batches).__name__}."
    )


def check_end(dataset: tf.data.Dataset, steps: int | None) -> None:
    """Raises ValueError for an endless data set whose epoch no number of steps would end."""
    if steps is None and int(dataset.cardinality()) == tf.data.INFINITE_CARDINALITY:
        raise ValueError(
            "The data set is endless (it repeats without a count), so its first epoch would never "
            "end. Received train(epochs=...) without steps; use train(steps=...), or leave out "
            "`repeat()`: every epoch begins the data set anew."
        )


def warn_of_shuffles(dataset: tf.data.Dataset) -> None:
    """Warns if a shuffle draws another order whenever the data set is iterated."""
    orders = [
        shuffle
        for shuffle in datasets_before(dataset)
        if getattr(shuffle, "_reshuffle_each_iteration", None)
    ]
    if orders:
        sizes = ", ".join(f"shuffle({int(shuffle._buffer_size)})" for shuffle in orders)
        warnings.warn(
            f"The data set has {sizes}, which draws another order at every iteration: an epoch "
            "that is resumed would see some examples twice and others never, and a resumed run "
            "would not be the uninterrupted one. Give batches_from a function of the epoch instead:"
            " batches_from(lambda epoch: examples.shuffle(size, seed=epoch).batch(n)).",
            stacklevel=3,
        )


def datasets_before(dataset: tf.data.Dataset) -> Iterator[Any]:
    """Yields a data set and all those from which it is made."""
    yield dataset
    for source in dataset._inputs():
        yield from datasets_before(source)


def open_feed(dataset: tf.data.Dataset, devices: Sequence[str], *, may_stop: bool = False) -> Feed:
    """Returns an iterator over the shards of a data set, placed on the devices one step ahead.

    Use it as a context manager, so that its thread ends with the epoch.

    Args:
        dataset: a data set of tuples with one `Shard` per device, as `split` returns.
        devices: the towers' devices.
        may_stop: whether a request to stop ends a long wait for a batch, with `StopTraining`. Of
            several processes none may stop alone.
    """
    on_host = all(tf.DeviceSpec.from_string(device).device_type == "CPU" for device in devices)
    kind = HostFeed if on_host else DeviceFeed
    return kind(dataset, devices, may_stop=may_stop)


class FeedItem(NamedTuple):
    """One item of a feed: the shards of a batch, the end, or an error.

    Attributes:
        shards: the shards on their devices; None at the end of the data set or for an error.
        ready: the time at which each tower's shard was ready, in seconds of `time.perf_counter`.
        error: the error that the data set raised, or None.
    """

    shards: tuple[Shard, ...] | None = None
    ready: Sequence[float] = ()
    error: BaseException | None = None


class Feed:
    """An iterator over shard tuples that can look ahead and measures waiting time.

    An error of the data set is raised by the `next` that would have returned the batch.

    Args:
        devices: the towers' devices.
        may_stop: as in `open_feed`.

    Attributes:
        waits: the time in seconds for which the last `next` waited for each tower's shard.
    """

    def __init__(self, devices: Sequence[str], *, may_stop: bool):
        self.waits: Sequence[float] = [0.0] * len(devices)
        self._devices = list(devices)
        self._may_stop = may_stop
        self._next: FeedItem | None = None
        self._next_waits: Sequence[float] = ()

    def __enter__(self) -> Feed:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __iter__(self) -> Iterator[tuple[Shard, ...]]:
        return self

    def __next__(self) -> tuple[Shard, ...]:
        item = self._peek()
        if item.error is not None:
            raise item.error
        if item.shards is None:
            raise StopIteration
        self._next, self.waits = None, self._next_waits
        return item.shards

    def exhausted(self) -> bool:
        """Returns whether no batch is left; waits until this is known."""
        item = self._peek()
        return item.shards is None and item.error is None

    def close(self) -> None:
        """Ends the feed's thread, if it has one."""

    def _peek(self) -> FeedItem:
        if self._next is None:
            requested = time.perf_counter()
            self._next = self._take()
            self._next_waits = [max(0.0, ready - requested) for ready in self._next.ready]
        return self._next

    def _take(self) -> FeedItem:
        raise NotImplementedError


def drop(held: list[Any]) -> None:
    """Empties a list in a thread of its own.

    TensorFlow lets go of an iterator only when its data set has answered, which may take long.
    """
    threading.Thread(target=held.clear, name="drop", daemon=True).start()


class HostFeed(Feed):
    """The feed of towers on the CPU: `tf.data` prefetches one step ahead, and nothing is copied.

    A thread asks the data set for a batch whenever one is taken, so that this thread can be
    interrupted. It does not work ahead: a Python thread would take cores from the towers.
    """

    def __init__(self, dataset: tf.data.Dataset, devices: Sequence[str], *, may_stop: bool = False):
        super().__init__(devices, may_stop=may_stop)
        self._asked: queue.SimpleQueue[bool] = queue.SimpleQueue()
        self._items: queue.SimpleQueue[FeedItem] = queue.SimpleQueue()
        self._is_waiting = False
        arguments = (dataset.prefetch(1), len(devices), self._asked, self._items)
        self._thread = threading.Thread(target=answer, args=arguments, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Ends the thread; one that waits for the data set ends by itself afterwards."""
        self._asked.put(False)
        if not self._is_waiting:
            self._thread.join(timeout=PATIENCE)

    def _take(self) -> FeedItem:
        if not self._is_waiting:
            self._asked.put(True)
        self._is_waiting = True
        item = take(self._items, may_stop=self._may_stop)
        self._is_waiting = False
        return item


def answer(
    dataset: tf.data.Dataset,
    num_towers: int,
    asked: queue.SimpleQueue[bool],
    items: queue.SimpleQueue[FeedItem],
) -> None:
    """Puts the next item of a data set into a queue each time that it is asked for one.

    Args:
        dataset: the data set of shards.
        num_towers: the number of towers.
        asked: True for another item, False for the end.
        items: the queue for the items.
    """
    iterator: Iterator[tuple[Shard, ...]] | None = None
    while asked.get():
        try:
            if iterator is None:  # Not earlier: its start counts as waiting.
                iterator = iter(dataset)
            shards = next(iterator)
            items.put(FeedItem(shards, [time.perf_counter()] * num_towers))
        except StopIteration:
            items.put(FeedItem())
        except BaseException as error:  # The `next` of this batch raises it.
            items.put(FeedItem(error=error))


class DeviceFeed(Feed):
    """The feed of towers on accelerators: a host thread copies each shard to its device in advance.

    Args:
        dataset, devices, may_stop: as in `open_feed`.
        ahead: the number of steps by which the thread is ahead.
    """

    def __init__(
        self,
        dataset: tf.data.Dataset,
        devices: Sequence[str],
        *,
        ahead: int = 1,
        may_stop: bool = False,
    ):
        super().__init__(devices, may_stop=may_stop)
        self._queue: queue.Queue[FeedItem] = queue.Queue(maxsize=ahead)
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._fill, args=(dataset,), daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Ends the thread; one that waits for the data set for long ends by itself afterwards."""
        self._closed.set()
        deadline = time.monotonic() + PATIENCE
        while self._thread.is_alive() and time.monotonic() < deadline:
            self._drain()
            self._thread.join(timeout=0.05)

    def _take(self) -> FeedItem:
        return take(self._queue, may_stop=self._may_stop)

    def _drain(self) -> None:
        while not self._queue.empty():
            self._queue.get_nowait()

    def _fill(self, dataset: tf.data.Dataset) -> None:
        try:
            for shards in dataset:
                if self._closed.is_set():
                    return
                self._put(self._place(shards))
            self._put(FeedItem())
        except BaseException as error:  # The thread that takes the item raises it.
            self._put(FeedItem(error=error))

    def _put(self, item: FeedItem) -> None:
        """Waits for room in the queue; drops the item if the feed is closed meanwhile."""
        while not self._closed.is_set():
            with contextlib.suppress(queue.Full):
                return self._queue.put(item, timeout=0.5)

    def _place(self, shards: tuple[Shard, ...]) -> FeedItem:
        placed, ready = [], []
        for device, shard in zip(self._devices, shards, strict=True):
            with tf.device(device):
                placed.append(tf.nest.map_structure(tf.identity, shard))
            ready.append(time.perf_counter())
        return FeedItem(tuple(placed), ready)

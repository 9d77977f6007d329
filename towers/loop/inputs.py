"""Input: puts each shard on its tower's device one step ahead."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import tensorflow as tf

from towers.step.shards import Batches, Shard


def batches_from(dataset: tf.data.Dataset) -> Batches:
    """Returns `batches(epoch, first_step)` over your own data set of global batches.

    Every epoch iterates over the data set from its beginning. A resumed epoch skips the consumed
    batches, which is exact if the data set yields the same batches in every iteration.
    """

    def batches(epoch: int, first_step: int = 0) -> tf.data.Dataset:
        return dataset.skip(first_step)

    return batches


def open_feed(dataset: tf.data.Dataset, devices: Sequence[str]) -> Feed:
    """Returns an iterator over the shards of a data set, placed on the devices one step ahead.

    Use it as a context manager, so that its thread ends with the epoch.

    Args:
        dataset: a data set of tuples with one `Shard` per device, as `split` returns.
        devices: the towers' devices.
    """
    on_host = all(tf.DeviceSpec.from_string(device).device_type == "CPU" for device in devices)
    return HostFeed(dataset, devices) if on_host else DeviceFeed(dataset, devices)


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

    Attributes:
        waits: the time in seconds for which the last `next` waited for each tower's shard.
    """

    def __init__(self, devices: Sequence[str]):
        self.waits: Sequence[float] = [0.0] * len(devices)
        self._devices = list(devices)
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


class HostFeed(Feed):
    """The feed of towers on the CPU: `tf.data` prefetches one step ahead, and nothing is copied.

    A Python thread would take cores from the towers.
    """

    def __init__(self, dataset: tf.data.Dataset, devices: Sequence[str]):
        super().__init__(devices)
        self._dataset = dataset.prefetch(1)
        self._iterator: Iterator[tuple[Shard, ...]] | None = None

    def _take(self) -> FeedItem:
        try:
            if self._iterator is None:  # Not earlier: its start counts as waiting.
                self._iterator = iter(self._dataset)
            return FeedItem(next(self._iterator), [time.perf_counter()] * len(self._devices))
        except StopIteration:
            return FeedItem()
        except Exception as error:  # The `next` of this batch raises it.
            return FeedItem(error=error)


class DeviceFeed(Feed):
    """The feed of towers on accelerators: a host thread copies each shard to its device in advance.

    Args:
        dataset, devices: as in `open_feed`.
        ahead: the number of steps by which the thread is ahead.
    """

    def __init__(self, dataset: tf.data.Dataset, devices: Sequence[str], *, ahead: int = 1):
        super().__init__(devices)
        self._queue: queue.Queue[FeedItem] = queue.Queue(maxsize=ahead)
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._fill, args=(dataset,), daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Ends the thread."""
        self._closed.set()
        while self._thread.is_alive():
            self._drain()
            self._thread.join(timeout=0.05)

    def _take(self) -> FeedItem:
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
            self._queue.put(FeedItem())
        except BaseException as error:  # The thread that takes the item raises it.
            self._queue.put(FeedItem(error=error))

    def _place(self, shards: tuple[Shard, ...]) -> FeedItem:
        placed, ready = [], []
        for device, shard in zip(self._devices, shards, strict=True):
            with tf.device(device):
                placed.append(tf.nest.map_structure(tf.identity, shard))
            ready.append(time.perf_counter())
        return FeedItem(tuple(placed), ready)

"""How shards reach the towers: each is on its device a step ahead."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import tensorflow as tf

from towers.step.shards import Batches, Shard


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
        except Exception as error:  # Whatever it is, the `next` of this batch raises it.
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
        except BaseException as error:  # Whatever it is, the thread that waits raises it.
            self._queue.put(Arrival(error=error))

    def _place(self, shards: tuple[Shard, ...]) -> Arrival:
        placed, ready = [], []
        for device, shard in zip(self._devices, shards, strict=True):
            with tf.device(device):
                placed.append(tf.nest.map_structure(tf.identity, shard))
            ready.append(time.perf_counter())
        return Arrival(tuple(placed), ready)

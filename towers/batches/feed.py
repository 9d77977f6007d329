"""Input: puts each shard on its tower's device ahead of its step; a stop signal ends its wait."""

from __future__ import annotations

import contextlib
import functools
import queue
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from towers.batches.shards import Shard
from towers.ground.host import HOST, are_all, device_type

REMEDY_FOR_ENDLESS_DATA = "say how many steps to train: train(steps=...), fit(steps_per_epoch=...)"
AHEAD = 2  # Batches that wait on their devices for their step.
PATIENCE = 1.0  # Seconds: of a stop for the next batch, of a closing feed for its thread.
POLL_SECONDS = 0.2
ALL_THREADS = 2**16  # More than a pipeline has; TensorFlow takes as many as there are.

_RECEIVED: list[list[int]] = []  # The signals of each `stop_on_signals`, the innermost last.


def check_end(
    dataset: tf.data.Dataset, steps: int | None, remedy: str = REMEDY_FOR_ENDLESS_DATA
) -> None:
    """Raises ValueError for an endless data set that no number of steps would end."""
    if steps is None and int(dataset.cardinality()) == tf.data.INFINITE_CARDINALITY:
        raise ValueError(
            "The data set is endless (it repeats without a count), so a pass over it would never "
            f"end. Leave out `repeat()`, since every pass begins the data set anew, or {remedy}."
        )


def iterator_of(dataset: tf.data.Dataset) -> Iterator[Any]:
    """Returns an iterator over a data set that ends as soon as nothing refers to it.

    TensorFlow's tuner of `AUTOTUNE` sleeps for up to a minute and may miss the end of its iterator,
    which then waits for it: a cancellation runs its callbacks before it counts as one
    (tensorflow/core/framework/cancellation.cc, `StartCancelWithStatus`). So the tuner is off, and
    `AUTOTUNE` means as many parallel calls as the pipeline has threads, or as many as the data
    set's own `options.autotune.initial_parallelism` says.
    """
    options = tf.data.Options()
    options.autotune.enabled = False
    given = dataset.options().autotune.initial_parallelism
    options.autotune.initial_parallelism = given or ALL_THREADS
    return iter(dataset.with_options(options))


def open_feed(dataset: tf.data.Dataset, devices: Sequence[str], *, may_stop: bool = False) -> Feed:
    """Returns an iterator over the shards of a data set, placed on the devices ahead of their step.

    Use it as a context manager, so that its thread ends with the epoch.

    Args:
        dataset: a data set of tuples with one `Shard` per device, as `split` returns; or of calls,
            as `in_calls` returns, which stay on the host.
        devices: the towers' devices.
        may_stop: whether a request to stop ends a long wait for a batch, with `StopTraining`. Of
            several processes none may stop alone.
    """
    on_host = not isinstance(dataset.element_spec, tuple) or are_all("CPU", devices)
    return Feed(dataset, devices, on_host=on_host, may_stop=may_stop)


class FeedItem(NamedTuple):
    """One item of a feed: the shards of a batch, the end, or an error.

    Attributes:
        shards: the shards on their devices, or a call; None at the end of the data set or for an
            error.
        ready: the time at which each tower's shard was ready, in seconds of `time.perf_counter`.
        error: the error that the data set raised, or None.
    """

    shards: tuple[Shard, ...] | None = None
    ready: Sequence[float] = ()
    error: BaseException | None = None


class Feed(contextlib.AbstractContextManager["Feed"]):
    """An iterator over shard tuples that can look ahead and measures waiting time.

    A thread takes the batches from the data set, and sends them to towers on accelerators, while
    the step before runs; so this one can be interrupted. An error of the data set is raised by the
    `next` that would have returned the batch.

    Attributes:
        waits: the time in seconds for which the last `next` waited for each tower's shard.
    """

    def __init__(
        self,
        dataset: tf.data.Dataset,
        devices: Sequence[str],
        *,
        on_host: bool,
        may_stop: bool = False,
    ):
        self.waits: Sequence[float] = [0.0] * len(devices)
        self._may_stop = may_stop
        self._next: FeedItem | None = None
        self._next_waits: Sequence[float] = ()
        self._is_waiting = False
        self._items: queue.SimpleQueue[FeedItem] = queue.SimpleQueue()
        self._asked = threading.Semaphore(AHEAD)
        self._closed = threading.Event()
        place = functools.partial(on_the_host if on_host else on_devices, list(devices))
        arguments = (dataset, place, self._asked, self._closed, self._items)
        self._thread = threading.Thread(target=fill, args=arguments, daemon=True)
        self._thread.start()

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
        """Ends the thread; one that waits for the data set for long ends by itself afterwards."""
        self._closed.set()
        self._asked.release()
        if not self._is_waiting:
            self._thread.join(timeout=PATIENCE)

    def _peek(self) -> FeedItem:
        if self._next is None:
            requested = time.perf_counter()
            self._next = self._take()
            self._next_waits = [max(0.0, ready - requested) for ready in self._next.ready]
        return self._next

    def _take(self) -> FeedItem:
        """Returns the next item of the queue.

        Signals are handled meanwhile, as Python does only where its main thread does not wait
        within TensorFlow.

        Raises:
            StopTraining: a stop is requested, and no item has come for `PATIENCE` seconds.
        """
        if not self._is_waiting:
            self._asked.release()
        self._is_waiting = True
        requested_at: float | None = None
        while True:
            try:
                item = self._items.get(timeout=POLL_SECONDS)
            except queue.Empty:
                now = time.monotonic()
                reason = pending_signal() if self._may_stop else ""
                if reason and requested_at is None:
                    requested_at = now
                elif requested_at is not None and now - requested_at > PATIENCE:
                    raise StopTraining(reason) from None
            else:
                self._is_waiting = False
                return item


def fill(
    dataset: tf.data.Dataset,
    place: Callable[[tuple[Shard, ...]], FeedItem],
    asked: threading.Semaphore,
    closed: threading.Event,
    items: queue.SimpleQueue[FeedItem],
) -> None:
    """Puts the items of a data set into a queue, one each time that it is asked for one.

    Args:
        place: returns shards where the towers take them.
        asked: how many more items to put.
        closed: whether to end instead.
    """
    iterator: Iterator[tuple[Shard, ...]] | None = None
    while asked.acquire() and not closed.is_set():
        try:
            if iterator is None:  # Not earlier: its start counts as waiting.
                iterator = iterator_of(dataset)
            items.put(place(next(iterator)))
        except StopIteration:
            return items.put(FeedItem())
        except BaseException as error:  # The `next` of this batch raises it.
            return items.put(FeedItem(error=error))


def on_the_host(devices: Sequence[str], shards: tuple[Shard, ...]) -> FeedItem:
    """Returns the shards of towers on the CPU, where they are."""
    return FeedItem(shards, [time.perf_counter()] * len(devices))


def on_devices(devices: Sequence[str], shards: tuple[Shard, ...]) -> FeedItem:
    """Returns each shard on its tower's device."""
    placed, ready = [], []
    for device, shard in zip(devices, shards, strict=True):
        with tf.device(device):
            send = functools.partial(send_to, device)
            placed.append(tf.nest.map_structure(send, shard, expand_composites=True))
        ready.append(time.perf_counter())
    return FeedItem(tuple(placed), ready)


def send_to(device: str, part: tf.Tensor) -> tf.Tensor:
    """Returns a tensor on the current device; int32 numbers and strings stay on the host."""
    if part.dtype in (tf.int32, tf.string) or device_type(device) == "CPU":
        return tf.identity(part)
    return sender(device, part.dtype, part.shape.rank)(part)


@functools.cache
def sender(device: str, dtype: tf.DType, rank: int) -> Callable[[tf.Tensor], tf.Tensor]:
    """Returns a function that sends a tensor from the host to a device; call it in its scope.

    A GPU fetches it by itself from page-locked memory, into which TensorFlow puts the result of an
    op that goes to a GPU only. `tf.data` has other memory: of that, the host makes each copy.
    """
    spec = tf.TensorSpec([None] * rank, dtype)

    @tf.function(input_signature=[spec], autograph=False)
    def send(tensor: tf.Tensor) -> tf.Tensor:
        with tf.device(HOST):
            tensor = tf.raw_ops.DeepCopy(x=tensor)
        with tf.device(device):
            return tf.identity(tensor)

    return send


class StopTraining(Exception):  # noqa: N818 - a request, like StopIteration.
    """An action raises it to end the training after this step; the message says why."""


@contextlib.contextmanager
def watched(received: list[int]) -> Iterator[None]:
    """The scope in which the first of these signals, which arrive in it, is a request to stop."""
    _RECEIVED.append(received)
    try:
        yield
    finally:
        _RECEIVED[:] = [one for one in _RECEIVED if one is not received]


def request_stop(number: int = signal.SIGTERM) -> None:
    """Has each training of this process in `stop_on_signals` end after its step, as on a signal.

    Any thread may call it.

    Args:
        number: of the signal.
    """
    for one in _RECEIVED:
        one.append(number)


def pending_signal() -> str:
    """Returns the name of the signal that requests to stop, or an empty string."""
    numbers = [one[0] for one in _RECEIVED if one]
    return signal.Signals(numbers[0]).name if numbers else ""

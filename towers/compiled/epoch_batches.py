"""The batches of an epoch: a pass over the data, or so many steps."""

from __future__ import annotations

import contextlib
import warnings
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import keras
import tensorflow as tf

from towers.batches.calls import in_calls
from towers.batches.feed import (
    AHEAD,
    REMEDY_FOR_ENDLESS_DATA,
    Feed,
    check_end,
    iterator_of,
    open_feed,
)
from towers.batches.shards import Batches
from towers.compiled.data import ArrayData, Data, PyData
from towers.ground.host import are_all
from towers.ground.private_apis import DataAdapter


def epochs_of(data: Data, steps: int | None, first_epoch: Callable[[], int] = lambda: 0) -> Batches:
    """Returns `batches(epoch, first_step)`: an epoch is a pass, or so many steps.

    With steps, an epoch continues where the last one stopped, and a new pass begins where one ends;
    the last epoch of a pass may be shorter. The training begins with the first batch of the pass of
    the number that `first_epoch` returns.
    """
    if steps is None:
        return data.one_pass
    count = data.num_batches
    if data.is_stream or count is None:
        stream = Stream(data, steps)
        return lambda epoch, first_step: stream.batches(epoch - first_epoch(), first_step)

    def batches(epoch: int, first_step: int) -> tf.data.Dataset:
        number, part = divmod(epoch - first_epoch(), -(-count // steps))
        start = part * steps
        if count - start < steps:
            warn_of_end()
        one_pass = data.one_pass(first_epoch() + number, start + first_step)
        return one_pass.take(steps - first_step)

    return batches


class ShardIterator:
    """The shards of an epoch, for the towers' own steps.

    Args:
        per_call: how many batches the step takes at once.
        in_graph: whether the step's graph may take them by itself: where it is known how many there
            are, since it finds out in the middle of a step that none is left.

    Attributes:
        in_graph: a `tf.data` iterator that the graph of a step takes them from, or None: `next`
            returns them.
        taken: how many batches were taken; the step counts them.
    """

    def __init__(
        self, dataset: tf.data.Dataset, *, devices: Sequence[str], per_call: int, in_graph: bool
    ):
        self.per_call, self.taken = per_call, 0
        self.in_graph: Any = None
        self._feed: Feed | None = None
        self._size = int(dataset.cardinality())
        in_graph &= self._size > 0 and (per_call > 1 or are_all("CPU", devices))
        if in_graph:
            self.in_graph = iterator_of(dataset.prefetch(AHEAD))
        else:
            dataset = in_calls(dataset, per_call) if per_call > 1 else dataset
            self._feed = open_feed(dataset, devices)

    def __iter__(self) -> ShardIterator:
        return self

    def __next__(self) -> Any:
        """Returns the shards of the next batch, or those of a call."""
        if self._feed is None:
            raise StopIteration
        return next(self._feed)

    def next_count(self) -> int | None:
        """How many batches the graph takes for the next call; None if `next` returns them."""
        return min(self.per_call, self._size - self.taken) if self.in_graph else None

    def is_at_end(self) -> bool:
        """Returns whether no batch is left; waits until this is known."""
        return self.taken == self._size if self._feed is None else self._feed.exhausted()

    @property
    def waits(self) -> Sequence[float]:
        """The time in seconds for which the last ones were waited for, for each tower."""
        return [] if self._feed is None else self._feed.waits

    def close(self) -> None:
        """Ends the reading."""
        if self._feed is not None:
            self._feed.close()


class EpochData(DataAdapter):
    """Data as Keras's own `fit` and `evaluate` read it: each epoch is a data set of its own.

    Args:
        steps: the number of steps of an epoch, or None for those of a pass over the data.
        open_epoch: returns an iterator over the batches of an epoch; one of `tf.data` by default.
        remedy: what ends data without an end.

    Raises:
        ValueError: a pass over the data would not end.

    Attributes:
        epoch, first_step: the number of the epoch that is read next, and of its first batch.
        first_epoch: that of the first one; None before it begins.
    """

    def __init__(
        self,
        data: Data,
        steps: int | None,
        open_epoch: Callable[[tf.data.Dataset], Any] | None = None,
        *,
        remedy: str = REMEDY_FOR_ENDLESS_DATA,
    ):
        self.data, self.steps = data, steps
        self.epoch = self.first_step = 0
        self.first_epoch: int | None = None
        whole = data.as_in_keras() if isinstance(data, ArrayData) else data
        self._batches = epochs_of(whole, steps, lambda: self.first_epoch or 0)
        self._size = tf.data.UNKNOWN_CARDINALITY  # Of the epoch.
        if data.num_batches is None:
            check_end(data.one_pass(0), steps, remedy)
        # A generator, or what a `PyDataset` does between batches, may be the user's business.
        self._may_read_ahead = not isinstance(data, PyData) and not data.is_generator
        self._open_epoch = open_epoch or self._open
        self._opened: Any = None
        self._is_open = self._is_next_open = self._has_begun = False

    @property
    def num_batches(self) -> int | None:
        """The number of batches of an epoch; None if it is unknown.

        It is 0 if it is unknown in the midst of an epoch: for None, Keras takes all epochs to be as
        long as the first, of which only the rest is read.
        """
        counts = filter(None, (self.steps, self.data.num_batches))
        return min(counts, default=0 if self.first_step else None)

    @property
    def limit(self) -> int | None:
        """What Keras is given as the number of steps where its configuration limits it."""
        return self.steps if keras.config.max_steps_per_epoch() else None

    def is_at_end(self, done: int) -> bool:
        """Returns whether an epoch has no batch after so many, as far as that can be known."""
        if isinstance(self._opened, ShardIterator):
            return self._opened.is_at_end()
        return 0 < (self.num_batches or 0) <= done

    def begin_epoch(self, epoch: int, first_step: int = 0) -> None:
        """Tells which epoch is read next, and from which batch on."""
        self.epoch, self.first_step = epoch, first_step
        if self.first_epoch is None:
            self.first_epoch = epoch

    def begin_step(self, step: int) -> None:
        """Raises StopIteration where a step has no batch, if that is known.

        It would find out in its graph, while the next random seed, which needs no batch, is drawn.
        """
        if 0 <= self._size <= step:
            raise StopIteration

    def get_tf_dataset(self) -> EpochData:
        """Returns what Keras iterates over in each epoch."""
        return self

    def __iter__(self) -> Iterator[Any]:
        """Returns the iterator of an epoch: with a limit of steps, Keras asks for it ahead.

        Without one it asks, too, but does not read it.
        """
        if self._is_open and self.limit is None:
            if self.data.is_stream and self.steps is None:
                iterator_of(self._batches(self.epoch, 0))  # After it `tf.data` shuffles anew.
            return iter(())
        self._is_next_open = self._is_open
        self._is_open = True
        batches = self._batches(self.epoch + self._is_next_open, self.first_step)
        self._size = int(batches.cardinality())
        self.close()
        self._opened = self._open_epoch(batches)
        return iter(self._opened)

    def close(self) -> None:
        """Ends the reading, and lets go of what reads."""
        if isinstance(self._opened, ShardIterator):
            self._opened.close()
        self._opened = None

    def _open(self, batches: tf.data.Dataset) -> Iterator[Any]:
        return iterator_of(batches.prefetch(tf.data.AUTOTUNE) if self._may_read_ahead else batches)

    def on_epoch_begin(self) -> None:
        """Hears that an epoch begins."""
        self._has_begun = True

    def on_epoch_end(self) -> None:
        """Hears that an epoch ends; Keras ends one before the first."""
        if not self._has_begun:
            self.data.begin()
        self._is_open, self._is_next_open, self._has_begun = self._is_next_open, False, False


class Stream:
    """Epochs of so many batches out of data that is read one batch after the other."""

    def __init__(self, data: Data, steps: int):
        self._data, self._steps = data, steps
        self._dataset = data.one_pass(0)
        self._iterator: Iterator[Any] | None = None
        self._next = 0  # How many batches were taken.

    def batches(self, epoch: int, first_step: int) -> tf.data.Dataset:
        """Returns the batches of an epoch from `first_step` on.

        TensorFlow never lets go of the function; what reads the data goes with this object.
        """
        take: Any = weakref.WeakMethod(self._take)
        return tf.data.Dataset.from_generator(
            lambda: take()(epoch, first_step), output_signature=self._dataset.element_spec
        )

    def _take(self, epoch: int, first_step: int) -> Iterator[Any]:
        begin, is_generator = epoch * self._steps, self._data.is_generator
        reads_on = is_generator and self._iterator is not None  # A validation's epoch is always 0.
        if self._next != begin + first_step and not reads_on:
            self._iterator = iterator_of(self._dataset.skip(begin + first_step))
        for step in range(first_step, self._steps):
            batch = None if self._iterator is None else next(self._iterator, None)
            begins = begin == 0 or not is_generator
            if batch is None and step == first_step and begins:
                self._iterator = iterator_of(self._dataset)
                batch = next(self._iterator, None)
            if batch is None and self._data.is_part:
                raise ValueError(
                    f"This process's part of the data ended after {step} of {self._steps} steps, "
                    "for which the other processes wait. Repeat it (`dataset.repeat()`), or say "
                    "how long it is: tf.data.experimental.assert_cardinality(number of batches)."
                )
            if batch is None:
                warn_of_end()
                break
            self._next = begin + step + 1
            yield batch
        self._next = begin + self._steps


def warn_of_end() -> None:
    """Warns, as Keras does, of data that ends before the steps of an epoch."""
    warnings.warn(
        "The data ended before the steps of the epoch: give steps_per_epoch and the number of "
        "batches so that one is a multiple of the other, or use `.repeat()`.",
        stacklevel=2,
    )


def check_generator(data: Data, steps: int | None, epochs: int, name: str) -> None:
    """Raises ValueError for a generator that several epochs read, unless the argument `name`
    says how many steps each has.
    """
    if data.is_generator and steps is None and epochs > 1:
        raise ValueError(
            "A generator is read once, so that later epochs would find it empty. Received "
            f"{epochs} epochs without {name}; pass it, or a tf.data.Dataset or a "
            "keras.utils.PyDataset, which begin anew."
        )


@contextlib.contextmanager
def ends_quietly() -> Iterator[None]:
    """The scope in which Keras does not warn of every end of data whose length it did not know."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Your input ran out of data")
        yield

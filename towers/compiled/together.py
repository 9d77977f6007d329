"""A compiled model in several processes: whose data it is, what must be equal, and who writes."""

from __future__ import annotations

import copy
import functools
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

from towers.batches.shards import OwnRows, any_number_of_rows
from towers.compiled.checks import is_overridden
from towers.compiled.data import ArrayData, Data, PyData, Shards, checksum, labels_of
from towers.ground.arguments import check_choice
from towers.ground.private_apis import potentially_ragged_concat
from towers.processes.agreement import (
    check_settings,
    share_texts,
    warn_of_other_inputs,
)
from towers.processes.place import find_place
from towers.processes.processes import NO_SIGNAL, Processes, join_processes
from towers.saving.run_record import package_versions
from towers.travel.pairs import part_sizes

COMPARED_BYTES = 2**28  # Of each array; a larger one is compared by evenly spaced rows.
# One process has to write what they write.
WRITERS = (
    keras.callbacks.BackupAndRestore,
    keras.callbacks.CSVLogger,
    keras.callbacks.ModelCheckpoint,
    keras.callbacks.RemoteMonitor,
    keras.callbacks.TensorBoard,
)
SHOWING = (keras.callbacks.ProgbarLogger, keras.callbacks.History)
BEGINS, ENDS = ("on_batch_begin", "on_train_batch_begin"), ("on_batch_end", "on_train_batch_end")


def join(data: str = "same", *, alone: bool = False) -> Together:
    """Returns the processes that work together on a model, which join unless they did before.

    Args:
        data: `same`: all of it in every process; `own`: a part of its own in each.
        alone: whether this process works alone, whatever others there are.
    """
    check_choice("data", data, ("same", "own"))
    if not alone:
        return Together(join_processes(), data == "own")
    place = find_place()
    return Together(Processes(), num_others=len(place.addresses) - 1 if place else 0)


class Together(NamedTuple):
    """The processes that work on a model, and whose data they work on.

    Attributes:
        processes: all of them, or this one alone.
        owns_data: whether each has a part of the data of its own.
        num_others: the number of processes that this one leaves to themselves.
    """

    processes: Processes
    owns_data: bool = False
    num_others: int = 0

    @property
    def is_several(self) -> bool:
        """Whether there are several processes."""
        return self.processes.count > 1

    def tell(self, verbose: Any) -> Any:
        """Says what trains together; returns the `verbose` of this process, as `verbose` does."""
        how = "on the same data, of which each takes its rows of every batch"
        if self.owns_data:
            how = "each on a part of the data of its own"
        line = f"{self.processes.count} processes train as one, {how}" if self.is_several else ""
        if self.num_others:
            line = f"this process trains alone, without the {self.num_others} beside it"
        if line and self.processes.is_chief and verbose != 0:
            print(line, flush=True)
        return self.verbose(verbose)

    def verbose(self, verbose: Any) -> Any:
        """Returns the `verbose` of this process: the chief's, and 0 in the others."""
        return verbose if self.processes.is_chief else 0

    def check(self, describe: Callable[[], dict[str, Any]]) -> None:
        """Raises ValueError in every process unless settings and versions are the same in all.

        Args:
            describe: returns the settings; a process that is alone does not call it.
        """
        if not self.is_several:
            return
        more = {"versions": package_versions(), "data": self.owns_data}
        check_settings(self.processes, describe() | more)

    def check_step(self, reason: object) -> object:
        """Returns why this process runs layers only; ValueError if it is one of several."""
        if self.is_several:
            raise ValueError(
                f"{self.processes.count} processes train with the towers' own step, which this "
                f"model cannot have, since {reason}. Train it in one process (alone=True), which "
                "may have all GPUs of its machine."
            ) from None
        return reason

    def any_of(self, *values: bool) -> list[bool]:
        """Returns whether each value is true in any process; all must ask."""
        shared = self.processes.share(bytes(values), "choices")
        return list(map(any, zip(*shared, strict=True)))

    def is_stopped(self, asks: bool) -> bool:
        """Returns whether all processes stop: what one asks for travels with the next sum."""
        if not self.is_several:
            return asks
        if asks:
            self.processes.request_stop(NO_SIGNAL)
        return bool(self.processes.stop_requests())

    def forget_stops(self) -> None:
        """Forgets what was asked for in an earlier training."""
        if self.is_several:
            self.processes.forget_stop_requests()

    def shards(self, data: Data, num_towers: int, steps: int | None) -> Shards:
        """Returns data as the shards of this process's towers; all processes call it together.

        An epoch has so many steps; None: those of a pass.

        Raises:
            ValueError: it is not the same data (of a `PyDataset`: when it begins), it is unknown
                how long the parts are, or a batch is too small to have rows of each.
        """
        count, index = self.processes.count, self.processes.index
        if not self.is_several or not self.owns_data:
            own = OwnRows(index * num_towers, num_towers, count * num_towers)
            check = functools.partial(check_same_data, self.processes)
            if isinstance(data, PyData):  # It may shuffle itself where it begins.
                return Shards(data, own, check=check, compared=self.is_several)
            check(data)
            return Shards(data, own, compared=self.is_several)
        if isinstance(data, ArrayData):
            check_shares(data.batch_size, count)
            data = data.in_batches_of(part_sizes(data.batch_size, count)[index])
        texts = self.processes.share(
            json.dumps([data.num_batches, repr(data.spec)]).encode(), "parts"
        )
        lengths, specs = zip(*map(json.loads, texts), strict=True)
        check_parts(lengths, specs, steps)
        data.is_part = None in lengths
        most = None if data.is_part else max(lengths)
        return Shards(data, OwnRows(0, num_towers, num_towers), most)

    def check_passes(self, data: Data) -> None:
        """Raises ValueError in every process if passes have begun with other labels in some.

        A process may have read ahead: what only some have begun is compared with what follows.
        """
        if not self.is_several or not isinstance(data, Shards):
            return
        own = list(data.begun)
        texts = share_texts(self.processes, json.dumps(own), "what has begun")
        common = set.intersection(*map(set, map(json.loads, texts)))
        check_data(self.processes, {name: data.begun.pop(name) for name in own if name in common})

    def by_parts(self, predict: Callable[[Any], Any], data: Data, num_batches: int) -> Any:
        """Returns the outputs of `predict` for all batches, of which each process predicts a part.

        The data are the same in all processes; outputs are a nest of arrays.
        """
        check_settings(self.processes, {"the number of batches to predict": num_batches})
        count, index = self.processes.count, self.processes.index
        first, last = num_batches * index // count, num_batches * (index + 1) // count
        # Who has none predicts one, to know what outputs are.
        batches = data.one_pass(0, min(first, num_batches - 1)).take(max(last - first, 1))
        outputs = predict(batches)
        shared = self.processes.share(to_bytes(outputs) if last > first else b"", "outputs")
        parts = [from_bytes(one, outputs) for one in shared if one]
        return keras.tree.map_structure(lambda *column: joined(list(column)), *parts)

    def callbacks(self, callbacks: Any) -> Any:
        """Returns the callbacks of this process: those that write are the chief's alone."""
        if self.processes.is_chief or callbacks is None:
            return callbacks
        if isinstance(callbacks, keras.callbacks.CallbackList):
            own = copy.copy(callbacks)  # The caller's list stays as it is.
            own.callbacks = list(deciding(callbacks.callbacks))
            return own
        return list(deciding(keras.tree.flatten(callbacks)))

    def hears_steps(self, callbacks: Sequence[keras.callbacks.Callback]) -> list[bool]:
        """Returns whether a callback, in any process, hears where steps begin, and where they end.

        It may stop the training there, or compile the model.
        """
        own = [callback for callback in deciding(callbacks) if not isinstance(callback, SHOWING)]
        heard = [
            any(is_overridden(one, hook, keras.callbacks.Callback) for one in own for hook in hooks)
            for hooks in (BEGINS, ENDS)
        ]
        return self.any_of(*heard) if self.is_several else [False, False]


def deciding(callbacks: Sequence[Any]) -> Iterator[Any]:
    """Yields the callbacks that run in every process, on the same logs."""
    return (callback for callback in callbacks if not isinstance(callback, WRITERS))


def to_bytes(outputs: Any) -> bytes:
    """Returns the bytes of a nest of outputs, whatever they hold."""
    parts = tf.nest.flatten(outputs, expand_composites=True)
    found: bytes = tf.io.serialize_tensor(list(map(tf.io.serialize_tensor, parts))).numpy()
    return found


def from_bytes(data: bytes, like: Any) -> Any:
    """Returns a nest of outputs from its bytes; `like` has the same structure."""
    specs = tf.nest.map_structure(spec_of, like)
    kinds = tf.nest.flatten(specs, expand_composites=True)
    pairs = zip(tf.io.parse_tensor(data, tf.string), kinds, strict=True)
    parts = [tf.io.parse_tensor(text, kind.dtype) for text, kind in pairs]
    return tf.nest.pack_sequence_as(specs, parts, expand_composites=True)


def spec_of(output: Any) -> tf.TypeSpec:
    """Returns the spec of an array, a ragged or a sparse tensor of any number of rows."""
    spec = tf.type_spec_from_value(output)
    is_sparse = isinstance(spec, tf.SparseTensorSpec)
    return tf.SparseTensorSpec(None, spec.dtype) if is_sparse else any_number_of_rows(spec)


def joined(parts: list[Any]) -> Any:
    """Returns parts of outputs as one array, or as what Keras returns in its place."""
    whole = potentially_ragged_concat(parts)
    return whole.numpy() if isinstance(whole, tf.Tensor) else whole


def check_shares(batch_size: int, count: int) -> None:
    """Raises ValueError for batches of which some process would have no row."""
    if batch_size < count:
        raise ValueError(
            'With data="own" every process has its rows of each batch. Received '
            f"batch_size={batch_size} for {count} processes; it must be at least their number."
        )


def check_parts(lengths: Any, specs: Any, steps: int | None) -> None:
    """Raises ValueError for parts that differ, or whose end nobody knows."""
    if len(set(specs)) > 1:
        raise ValueError(
            f"The processes' parts of the data must be of the same kinds. Received {specs}."
        )
    if (None in lengths and steps is None) or 0 in lengths:
        raise ValueError(
            "Every process needs a part of the data, and how many batches it has. Received "
            f"{list(lengths)} batches in the processes (None: unknown). Give steps_per_epoch and "
            "data without an end, or tf.data.experimental.assert_cardinality(number of batches)."
        )


def check_same_data(processes: Processes, data: Data) -> None:
    """Raises ValueError in every process unless all have the same data.

    Of data in an order of its own the first labels are compared (or inputs, without labels): inputs
    may be augmented. Those that differ are warned of.
    """
    if processes.count == 1:
        return
    if isinstance(data, ArrayData):
        batch, name, compared = None, "a checksum of the data", compared_arrays(data)
    else:
        batch = data.first_batch()
        name, compared = "a checksum of the first labels", labels_of(batch)
    check_data(processes, {"batches": data.num_batches, name: checksum(compared)})
    if batch is not None:
        warn_of_other_inputs(processes, batch)


def check_data(processes: Processes, found: Mapping[str, Any]) -> None:
    """Raises ValueError in every process unless all have found the same of their data."""
    try:
        check_settings(processes, found)
    except ValueError as error:
        raise ValueError(
            f'{error} Parts of their own need data="own", and a data set that shuffles a seed.'
        ) from None


def compared_arrays(data: ArrayData) -> list[np.ndarray]:
    """Returns the arrays of data, or as many of their rows as are compared."""
    return [
        array[:: array.nbytes // COMPARED_BYTES + 1] if array.ndim else array
        for array in data.arrays()
    ]

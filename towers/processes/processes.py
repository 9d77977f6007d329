"""Several processes that train one model: their number, and one sum across them per step.

Every process has its own towers. Sums are taken in host memory, so each step sends one message per
dtype, however many towers a process has. The sum uses TensorFlow's `MultiWorkerMirroredStrategy`,
which gets no GPU: it reduces tensors in host memory, and the towers keep the GPUs.
"""

from __future__ import annotations

import contextlib
import functools
import json
import signal
import threading
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from towers.batches.shards import Batches, OwnRows, RowBatches, split
from towers.ground.host import HOST
from towers.ground.private_apis import CoordinatedJob, context, has_begun
from towers.processes.peers import WAIT_SECONDS, wait_for_peers
from towers.processes.place import Place, exposure, find_place
from towers.processes.watch import APART, SILENT_SECONDS, LostPeerError, Watch
from towers.travel.gradients import identity, sum_repeated_rows
from towers.travel.packing import Nest, cut_by_dtype, join_by_dtype

# TensorFlow's own watch comes after ours, which names who is lost.
LATER_SECONDS = 60.0
NO_SIGNAL = 0  # Stands for all reasons to stop that are not a signal.
JOINED: dict[tuple[Any, ...], Processes] = {}  # TensorFlow joins only once, by addresses and index.


class Processes:
    """The processes that train one model; this process is one of them, or the only one.

    Args:
        strategy: the strategy that reduces across processes; None for one process.
        count: the number of processes.
        index: the index of this process, from 0.
        watch: looks at the others; None for one process.

    Attributes:
        count, index: as given.
    """

    def __init__(
        self, strategy: Any = None, count: int = 1, index: int = 0, watch: Watch | None = None
    ):
        self.count = count
        self.index = index
        self._strategy, self._watch = strategy, watch
        if strategy is not None:
            with tf.device(HOST):
                # For each signal, the number of processes that were asked to stop.
                none = tf.zeros([signal.NSIG], tf.int32)
                self._stop_requests = tf.Variable(none, trainable=False, name="stop_requests")
                self._all_stop_requests = tf.Variable(
                    none, trainable=False, name="all_stop_requests"
                )

    @property
    def is_chief(self) -> bool:
        """Whether this process writes the checkpoints and the averages."""
        return self.index == 0

    @property
    def description(self) -> str:
        """The end of a line about this process; an empty string for one process."""
        return f", process {self.index} of {self.count}" if self.count > 1 else ""

    def first_tower(self, num_towers: int) -> int:
        """Returns the number of this process's first tower; each process has `num_towers`."""
        return self.index * num_towers

    def split(self, dataset: tf.data.Dataset, num_towers: int) -> tf.data.Dataset:
        """Returns this process's shards of global batches, all of which it reads."""
        first = self.first_tower(num_towers)
        return split(dataset, self.count * num_towers, slice(first, first + num_towers))

    def shards(
        self, batches: Batches, num_towers: int, epoch: int, first_step: int = 0
    ) -> tf.data.Dataset:
        """Returns this process's shards of the batches of an epoch.

        Of batches that can be read in part, it reads its own rows only; others it reads whole.

        Args:
            batches: `batches(epoch, first_step)` of global batches, the same in every process.
            num_towers: the number of towers of each process.
            epoch: number of the epoch, from 0.
            first_step: number of its batches that were consumed already.
        """
        if self.count == 1 or not isinstance(batches, RowBatches):
            return self.split(batches(epoch, first_step), num_towers)
        own = OwnRows(self.first_tower(num_towers), num_towers, self.count * num_towers)
        return own.shards(batches, epoch, first_step)

    def sum(self, nest: Any) -> Any:
        """Returns a nest summed over the processes, in the graph of a step.

        Every process must call it the same number of times, in the same order.

        Args:
            nest: dense tensors and `tf.IndexedSlices`, with the same structure in every process;
                None stays None. Rows of sparse sums are unique.
        """
        if self.count == 1:
            return nest
        form = Nest(nest, expand=False)
        with tf.device(HOST), tf.name_scope("across_processes"):
            *summed, requests = self._sum_all([*form.tensors, tf.identity(self._stop_requests)])
            self._all_stop_requests.assign(requests)
        return form.pack(summed)

    def _sum_all(self, parts: Sequence[Any]) -> list[Any]:
        dense = [index for index, part in enumerate(parts) if isinstance(part, tf.Tensor)]
        sparse = [index for index in range(len(parts)) if index not in dense]
        tensors = [parts[index] for index in dense]
        slices = [parts[index] for index in sparse]
        vectors, sums = self._strategy.run(all_reduce, args=(join_by_dtype(tensors), slices))
        results: list[Any] = list(parts)
        for index, value in zip(dense, cut_by_dtype(vectors, tensors), strict=True):
            results[index] = value
        for index, value in zip(sparse, sums, strict=True):
            results[index] = sum_repeated_rows(value)
        return results

    def naming(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Returns a function that sums in its graph, and whose error names the peer that is lost.

        It raises `LostPeerError` then.
        """
        return function if self._watch is None else self._watch.naming(function)

    def chief_values(self, variables: Sequence[Any]) -> list[tf.Tensor]:
        """Returns the values that the variables have in the chief; every process must call it."""

        @tf.function(autograph=False)
        def from_chief() -> list[tf.Tensor]:
            values = [tf.convert_to_tensor(variable) for variable in variables]
            # Collectives do not add booleans and small whole numbers.
            sent = [
                tf.cast(one, tf.int64) if one.dtype.is_integer or one.dtype.is_bool else one
                for one in values
            ]
            found = self.sum(sent if self.is_chief else list(map(tf.zeros_like, sent)))
            return [tf.cast(one, v.dtype) for one, v in zip(found, values, strict=True)]

        return self.naming(from_chief.get_concrete_function())()

    def share(self, data: bytes, what: str = "") -> list[bytes]:
        """Returns the bytes of all processes, in order; every process gives its own.

        They are summed as whole numbers, with zeros, so that every bit arrives.

        Args:
            data: the bytes.
            what: they are; it must be the same in every process.

        Raises:
            RuntimeError: in every process, if other processes share something else.
        """
        if self.count == 1:
            return [data]
        heads = np.zeros([self.count, 2], np.int32)
        heads[self.index] = len(data), zlib.crc32(what.encode()) >> 1
        lengths, kinds = self._total(heads.reshape(-1)).reshape(heads.shape).T
        if len(set(kinds)) > 1:
            raise RuntimeError(APART)
        rows = np.zeros([self.count, -(-max(lengths) // 4)], np.int32)
        rows[self.index].view(np.uint8)[: len(data)] = np.frombuffer(data, np.uint8)
        rows = self._total(rows.reshape(-1)).reshape(rows.shape)
        return [row.tobytes()[:length] for row, length in zip(rows, lengths, strict=True)]

    def of_chief(self, value: Any) -> Any:
        """Returns the chief's value, of JSON types; every process gives its own."""
        return json.loads(self.share(json.dumps(value).encode(), "values of the chief")[0])

    @functools.cached_property
    def _total(self) -> Callable[[np.ndarray], np.ndarray]:
        """A function of a vector that returns its sum over all processes, traced once."""

        @tf.function(autograph=False, input_signature=[tf.TensorSpec([None], tf.int32)])
        def summed(vector: tf.Tensor) -> tf.Tensor:
            return self.sum([vector])[0]

        function = self.naming(summed.get_concrete_function())
        return lambda vector: function(tf.constant(vector)).numpy()

    def broadcast(self, variables: Sequence[Any]) -> None:
        """Assigns the chief's values to the variables in every process."""
        if self.count > 1:
            for variable, value in zip(variables, self.chief_values(variables), strict=True):
                variable.assign(value)

    def wait(self) -> None:
        """Waits until every process has called it; then one may end and is not lost to the others.

        Its last words may be lost with it, but not what the others need: that they are through.
        """
        self.share(b"")
        with contextlib.suppress(LostPeerError):
            self.share(b"")

    @contextlib.contextmanager
    def chief_first(self) -> Iterator[None]:
        """The scope that the other processes enter only after the chief has left it."""
        if not self.is_chief:
            self.wait()
        yield
        if self.is_chief:
            self.wait()

    def request_stop(self, number: int) -> None:
        """Requests all processes to stop; the request travels with the next step's sum.

        Args:
            number: the number of the signal that this process received, or `NO_SIGNAL`.
        """
        self._stop_requests.assign(tf.one_hot(number, signal.NSIG, dtype=tf.int32))

    def forget_stop_requests(self) -> None:
        """Forgets the requests of this process, and what it knows of those of others."""
        for requests in (self._stop_requests, self._all_stop_requests):
            requests.assign(tf.zeros_like(requests))

    def stop_requests(self) -> list[int]:
        """Returns the numbers that processes passed to `request_stop`, in ascending order."""
        return np.flatnonzero(self._all_stop_requests.numpy()).tolist()


def all_reduce(
    packs: list[tf.Tensor], sparse: list[tf.IndexedSlices]
) -> tuple[list[Any], list[Any]]:
    """Returns packs and sparse tensors summed over the replicas, one in each process."""
    context: Any = tf.distribute.get_replica_context()

    def total(value: Any) -> Any:
        return context.all_reduce(tf.distribute.ReduceOp.SUM, value)

    # Copied to the replica's device, whose full name differs from that of the host's CPU.
    packs, sparse = list(map(tf.identity, packs)), list(map(identity, sparse))
    return list(map(total, packs)), list(map(total, sparse))


def join_processes(
    *, wait_seconds: float = WAIT_SECONDS, silent_seconds: float = SILENT_SECONDS
) -> Processes:
    """Returns the processes that TF_CONFIG or Slurm's `srun` names, or only this one.

    Call it after `select_devices` and before anything else touches TensorFlow, such as a model. It
    says which port it opens, waits until all processes have joined, and prints which it is waiting
    for. Later calls return the same.

    Args:
        wait_seconds: the longest time to wait for the others.
        silent_seconds: how long another process may give no sign of life, as on a network that
            fails, until it counts as lost. One that has ended is noticed within seconds.

    Raises:
        ValueError: TF_CONFIG does not have the form that TensorFlow's guide describes, a variable
            of Slurm's is wrong, the port is in use, or TensorFlow has begun.
        TimeoutError: other processes did not come.
        RuntimeError: they began without this process, which came back.
    """
    place = find_place()
    if place is None:
        return Processes()
    addresses, index = place.addresses, place.index
    key = (*addresses, index)
    if key not in JOINED:
        check_has_not_begun(len(addresses), index)
        line = exposure([addresses[index]])
        if line:
            print(line, flush=True)
        wait_for_peers(addresses, index, seconds=wait_seconds)
        let_tensorflow_wait(len(addresses), silent_seconds + LATER_SECONDS)
        strategy = tf.distribute.MultiWorkerMirroredStrategy(cluster_resolver=hosts_only(place))
        take_back_sigterm()
        watch = Watch(addresses, index, silent_seconds, abort)
        JOINED[key] = Processes(strategy, len(addresses), index, watch)
    return JOINED[key]


def check_has_not_begun(count: int, index: int) -> None:
    """Raises ValueError if TensorFlow runs already, which several processes begin together."""
    if has_begun():
        raise ValueError(
            f"This process is number {index} of {count}, and TensorFlow has begun without the "
            "others. Call towers.processes.join_processes() before the first tensor, variable or "
            "model is made (after select_devices), or remove TF_CONFIG (or srun) to train alone."
        )


def abort(line: str) -> None:
    """Ends all sums across processes, those that wait and those to come, with a line."""
    context.context().abort_collective_ops(tf.errors.UNAVAILABLE, line)


def let_tensorflow_wait(count: int, seconds: float) -> None:
    """Makes TensorFlow wait so long before it calls a silent process crashed.

    Its own default of ten seconds ends the training on a machine that is merely busy.
    """
    context.context().configure_coordination_service(
        service_type="standalone",
        service_leader="/job:worker/replica:0/task:0",
        heartbeat_timeout_in_ms=int(seconds * 1000),
        coordinated_jobs=[CoordinatedJob(name="worker", num_tasks=count)],
    )


def take_back_sigterm() -> None:
    """Gives SIGTERM back to its handler in Python, whose place a notifier of TensorFlow's took.

    The notifier expects a step to ask it, and until then the signal would be lost. Python sets
    handlers in the main thread only.
    """
    handler = signal.getsignal(signal.SIGTERM)
    if handler is not None and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, handler)


def hosts_only(place: Place) -> tf.distribute.cluster_resolver.ClusterResolver:
    """Returns the cluster of a place, as if no machine had a GPU.

    It is not a `TFConfigClusterResolver`: TensorFlow ignores the number of accelerators of that
    class and its subclasses, and reduces on all GPUs that it finds.
    """
    return tf.distribute.cluster_resolver.SimpleClusterResolver(
        tf.train.ClusterSpec({"worker": place.addresses}),
        task_type="worker",
        task_id=place.index,
        num_accelerators={},
        rpc_layer="grpc",
    )

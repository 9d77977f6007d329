"""Synchronised layers: sums over all towers in the middle of their forward and backward passes.

A layer such as `BatchNormalization(synchronized=True)` asks its `tf.distribute.ReplicaContext` for
sums over the replicas. Towers are traced one after the other, so each sum is at first an identity
of the tower's own part; once all towers are traced, the identities get the sum of all parts as
their input. The gradient of such a sum is the sum of the towers' gradients, made in the same way:
a rendezvous can be entered again for a backward pass.
"""

from __future__ import annotations

import contextlib
import itertools
import re
from collections.abc import Iterator
from typing import Any, NoReturn

import tensorflow as tf

from towers.ground.private_apis import replace_input
from towers.travel.pairs import add_in_pairs

Key = tuple[int, ...]  # The number of a sum in the forward pass; then those of its gradients.
TOWER = re.compile(r"\b(tower|denominators)(_\d+)+\b")


class Rendezvous(contextlib.AbstractContextManager["Rendezvous"]):
    """The scope of towers while they are traced, one after the other.

    Args:
        num_towers: the number of towers in this process.
        device: the device that adds their parts.
        num_processes: the number of processes; towers of several cannot add.

    Attributes:
        has_met: whether layers summed over the towers.
    """

    def __init__(self, num_towers: int = 1, device: str = "", num_processes: int = 1):
        self._is_alone = num_towers * num_processes == 1
        self._device = device
        self._refusal = "between processes" if num_processes > 1 else None
        self._replicas: list[Replica] = []
        self.has_met = False

    def __exit__(self, error: type[BaseException] | None, *_: object) -> None:
        if error is None:
            self._add()

    @contextlib.contextmanager
    def join(self, *, compiled: bool = False) -> Iterator[Replica | None]:
        """The scope of the next tower; it yields where its layers sum, None if they do not."""
        refusal = "in towers that XLA compiles" if compiled else self._refusal
        refusal = "without a graph; call it in a tf.function" if tf.executing_eagerly() else refusal
        if self._is_alone:  # A sum over the replicas is the tower's own.
            yield None
        elif refusal is not None:
            with Refusal(refusal):
                yield None
        else:
            self._replicas.append(replica := Replica())
            with replica:
                yield replica

    def _add(self) -> None:
        """Adds the parts of all towers; raises RuntimeError unless they ask for the same sums."""
        check_same_sums([replica.sums for replica in self._replicas])
        while any(replica.sums for replica in self._replicas):
            key, self.has_met = next(iter(self._replicas[0].sums)), True
            operations = [replica.sums.pop(key).op for replica in self._replicas]
            with tf.device(self._device), tf.name_scope("synchronized"):
                total = add_in_pairs(tf.add, [operation.inputs[0] for operation in operations])
            for operation in operations:
                replace_input(operation, 0, total)


class Replica(tf.distribute.ReplicaContext):
    """The replica in which layers find themselves within a tower that has joined a rendezvous.

    Attributes:
        sums: the sums that layers asked for: identities, of the tower's own parts at first.
    """

    def __init__(self) -> None:
        super().__init__(tf.distribute.get_strategy(), 0)
        self.sums: dict[Key, tf.Tensor] = {}
        self._size: Any = None  # Of the micro-batch that is traced.
        self._graph: tf.Graph | None = None
        self._numbers = itertools.count()

    def begin(self, size: tf.Tensor) -> None:
        """Begins with a micro-batch of `size` rows; of an empty one, nothing is added."""
        self._graph = self._graph or size.graph
        self._size = size

    def all_reduce(self, reduce_op: Any, value: Any, options: Any = None) -> Any:
        """Returns the sum of a nest of tensors over all towers.

        Raises:
            RuntimeError: it is not a sum, or cannot be added across towers.
        """
        if tf.distribute.ReduceOp(str(getattr(reduce_op, "value", reduce_op)).upper()) != SUM:
            raise RuntimeError(
                "A layer takes a mean over all replicas, but towers can be empty or have "
                f"different numbers of rows. Expected a sum, received {reduce_op}; sum the values "
                "and the rows, then divide."
            )
        return tf.nest.map_structure(self._sum, value)

    def all_gather(self, *_: Any, **options: Any) -> NoReturn:
        """Raises RuntimeError: towers add, and gather nothing."""
        raise RuntimeError(
            "A layer gathers values from all replicas, which towers do not support. Expected sums "
            "(`all_reduce`), as in BatchNormalization(synchronized=True)."
        )

    def _sum(self, value: Any) -> tf.Tensor:
        value = tf.convert_to_tensor(value)
        if not value.shape.is_fully_defined():
            raise RuntimeError(
                "A layer sums a tensor over all towers, but its shape may differ between them. "
                f"Received '{value.name}' of shape {value.shape}; expected a fixed shape: sum "
                "over the rows first."
            )
        part = tf.where(self._size > 0, value, tf.zeros_like(value))
        if part.graph is not self._graph:
            raise RuntimeError(
                "A layer in a loop or a branch sums over all towers, as "
                f"BatchNormalization(synchronized=True) does. Received '{value.name}'; expected a "
                "layer that the tower function calls directly. Leave `synchronized` out, or call "
                "the layer outside the loop."
            )
        return self._total(part, (next(self._numbers),))

    def _total(self, part: tf.Tensor, key: Key) -> tf.Tensor:
        """Returns the sum of a part over all towers, with a gradient that is such a sum."""
        numbers = itertools.count()

        @tf.custom_gradient
        def total(part: tf.Tensor) -> tuple[tf.Tensor, Any]:
            self.sums[key] = tf.identity(part, name="sum_over_towers")

            def backward(upstream: tf.Tensor) -> tf.Tensor:
                return self._total(upstream, (*key, next(numbers)))

            return self.sums[key], backward

        return total(part)


SUM = tf.distribute.ReduceOp.SUM


class Listener(tf.distribute.ReplicaContext):
    """The replica in which a trace shows whether layers sum over the replicas."""

    def __init__(self) -> None:
        super().__init__(tf.distribute.get_strategy(), 0)
        self.has_heard = False

    def all_reduce(self, reduce_op: Any, value: Any, options: Any = None) -> Any:
        """Returns the value, the sum over a single replica."""
        self.has_heard = True
        return value


class Refusal(tf.distribute.ReplicaContext):
    """The replica in which layers find themselves where towers cannot add in the middle of a pass.

    The reason is the end of a sentence.
    """

    def __init__(self, reason: str):
        super().__init__(tf.distribute.get_strategy(), 0)
        self._reason = reason

    def all_reduce(self, *_: Any, **options: Any) -> NoReturn:
        """Raises RuntimeError; TensorFlow would return the tower's own part as the sum."""
        raise RuntimeError(
            "A layer sums over all replicas, as BatchNormalization(synchronized=True) does, which "
            f"is not possible {self._reason}. Only towers of one process can sum, in graphs "
            "without XLA. Leave `synchronized` out to normalise each part by its own statistics."
        )

    all_gather = all_reduce


def check_same_sums(replicas: list[dict[Key, tf.Tensor]]) -> None:
    """Raises RuntimeError unless all towers ask for the same sums in the same order."""
    each = [{key: TOWER.sub("tower", one.op.name) for key, one in m.items()} for m in replicas]
    for tower, names in enumerate(each):
        for key in sorted({*each[0], *names}):
            expected, received = each[0].get(key), names.get(key)
            if expected != received:
                raise RuntimeError(
                    "All towers must call synchronised layers, such as "
                    "BatchNormalization(synchronized=True), in the same order. Tower 0 asks for "
                    f"{expected or 'no other sum'}, tower {tower} for "
                    f"{received or 'no other sum'}. The tower function must do the same each time "
                    "it is called."
                )

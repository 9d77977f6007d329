"""The carried state: one row for each row of a batch, carried from one step to the next."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from towers.batches.shards import Shard, check
from towers.ground.host import HOST
from towers.travel.pairs import part_sizes

CarriedValues = Any  # Any nest of tensors whose first dimension counts the rows of a batch.


@dataclasses.dataclass(frozen=True)
class Carried:
    """The specs of a state that is carried from step to step, one row per row of a batch.

    Args:
        specs: a nest of `tf.TensorSpec`, each with the fully defined shape of one row.
        num_rows: the number of rows in every batch.

    Raises:
        ValueError: the specs or the number of rows are wrong.
    """

    specs: Any
    num_rows: int

    def __post_init__(self) -> None:
        parts = tf.nest.flatten(self.specs)
        known = all(isinstance(p, tf.TensorSpec) and p.shape.is_fully_defined() for p in parts)
        if self.specs is None or not parts or not known:
            raise ValueError(
                "carried must be a nest of tf.TensorSpec, each with the fully defined shape of "
                f"one row. Received {self.specs!r}."
            )
        if not isinstance(self.num_rows, int) or self.num_rows < 1:
            raise ValueError(
                "num_rows must be the number of rows in every batch, because each row has its own "
                f"state. Received {self.num_rows}."
            )


class CarriedState:
    """The variables of the carried state; there are none without a carried state.

    `towers.engine.split_batch` gives row `r` of every batch to the same tower. The state of this
    row stays on that tower's device and begins with zeros. No gradient flows through it into the
    previous step.

    Attributes:
        shard_specs: the specs of a shard's state; () without a carried state.
        variables: one per spec, for checkpoints.
    """

    def __init__(self, carried: Carried | None, devices: Sequence[str]):
        specs = () if carried is None else carried.specs
        self._rows = part_sizes(0 if carried is None else carried.num_rows, len(devices))
        self.shard_specs = tf.nest.map_structure(
            lambda spec: tf.TensorSpec([None, *spec.shape], spec.dtype), specs
        )
        leaves = tf.nest.flatten(specs)
        numbers = tf.nest.pack_sequence_as(specs, list(range(len(leaves))))
        paths = {number: path for path, number in keras.tree.flatten_with_path(numbers)}
        self.variables = [
            CarriedVariable("/".join(["carried", *map(str, paths[i])]), spec, self._rows, devices)
            for i, spec in enumerate(leaves)
        ]

    def attach(self, tower: int, shard: Shard) -> Shard:
        """Returns the shard with the pair (batch, state) as its batch."""
        with tf.name_scope("carried"):
            values = [variable.read(tower) for variable in self.variables]
        state = tf.nest.pack_sequence_as(self.shard_specs, values)
        return shard._replace(batch=(shard.batch, state))

    def assign(self, states: Sequence[CarriedValues]) -> None:
        """Stores the towers' new states for the next step, each on its tower's device."""
        for tower, state in enumerate(states):
            for variable, value in zip(self.variables, tf.nest.flatten(state), strict=True):
                variable.write(tower, value)

    def reset(self) -> None:
        """Sets the state to zeros."""
        for variable in self.variables:
            variable.assign(np.zeros(variable.shape, variable.dtype.as_numpy_dtype))

    def check_rows(self, shards: Sequence[Shard]) -> list[tf.Operation]:
        """Raises ValueError unless the shards have exactly the rows of the carried state.

        In a graph it returns what has to run first: an op that raises
        `tf.errors.InvalidArgumentError`.
        """
        if not self.variables:
            return []
        message = (
            f"Every batch must have the {sum(self._rows)} rows whose state is carried, "
            f"{self._rows} on the towers; drop a smaller last batch, or give Carried the number "
            "of rows in your batches."
        )
        if not tf.executing_eagerly():
            sizes = tf.stack([shard.size for shard in shards])
            return [check(tf.reduce_all(sizes == self._rows), message, sizes)]
        received = [int(shard.size) for shard in shards]
        if received != self._rows:
            raise ValueError(f"{message} Received shards of {received} rows.")
        return []


class CarriedVariable:
    """One tensor of the state: the rows of a whole batch, each on its tower's device.

    A checkpoint saves and restores it like a variable, also on another number of towers.
    """

    def __init__(self, name: str, spec: tf.TensorSpec, rows: list[int], devices: Sequence[str]):
        self.name = name
        self.shape = tf.TensorShape([sum(rows), *spec.shape])
        self.dtype = spec.dtype
        self.device = HOST  # Checkpoints assign the rows of all towers there.
        self._devices = list(devices)
        self._parts = []
        for device, size in zip(devices, rows, strict=True):
            with tf.device(device):
                zeros = tf.zeros([size, *spec.shape], spec.dtype)
                self._parts.append(tf.Variable(zeros, trainable=False, name=name))

    def read(self, tower: int) -> tf.Tensor:
        """Returns a tower's rows; one row of zeros for a tower without rows."""
        part = self._parts[tower]
        if part.shape[0] == 0:
            return tf.zeros([1, *part.shape[1:]], part.dtype)
        return tf.convert_to_tensor(part)

    def write(self, tower: int, rows: tf.Tensor) -> None:
        """Stores a tower's rows, without the placeholder row of an empty shard."""
        part = self._parts[tower]
        with tf.device(self._devices[tower]):
            part.assign(tf.ensure_shape(rows[: part.shape[0]], part.shape))

    def read_value(self) -> tf.Tensor:
        """Returns the rows of all towers, in the order of the batch."""
        with tf.device(self.device):
            return tf.concat(self._parts, 0)

    def assign(self, rows: np.ndarray) -> None:
        """Stores the rows of all towers, given in the order of the batch."""
        starts = np.cumsum([part.shape[0] for part in self._parts])[:-1]
        for tower, part in enumerate(np.split(rows, starts)):
            self.write(tower, tf.convert_to_tensor(part))

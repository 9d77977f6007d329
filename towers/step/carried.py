"""What a tower carries from one step to the next: a row of state for each row of its batches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from towers.loop.inputs import Batch, Shard, part_sizes
from towers.step.parameters import CPU
from towers.step.tower import ShardFn, State, TowerFn, check_results


class CarriedState:
    """The state that the towers carry; it is empty where they carry nothing.

    Row `r` of every batch belongs to the same tower, as `towers.split_batch` cuts batches. Its
    row of the state stays on that tower's device, is zeros at first, and no gradient flows
    through it from one step into the one before.

    Args:
        specs: a nest of `tf.TensorSpec`, each of one row, or None.
        num_rows: how many rows every batch has, None without specs.
        devices: the towers' devices.

    Attributes:
        shard_specs: the specs of a shard's state, () where nothing is carried.
        variables: one for each spec, for a checkpoint.
    """

    def __init__(self, specs: Any, num_rows: int | None, devices: Sequence[str]):
        check_specs(specs, num_rows)
        specs = () if specs is None else specs
        self._rows = part_sizes(num_rows or 0, len(devices))
        self.shard_specs = tf.nest.map_structure(
            lambda spec: tf.TensorSpec([None, *spec.shape], spec.dtype), specs
        )
        self.variables = [
            CarriedVariable("/".join(["carried", *map(str, path)]), spec, self._rows, devices)
            for path, spec in keras.tree.flatten_with_path(specs)
        ]

    def attach(self, tower: int, shard: Shard) -> Shard:
        """Returns the shard with the pair (batch, state) as its batch."""
        with tf.name_scope("carried"):
            values = [variable.read(tower) for variable in self.variables]
        state = tf.nest.pack_sequence_as(self.shard_specs, values)
        return shard._replace(batch=(shard.batch, state))

    def assign(self, states: Sequence[State]) -> None:
        """Keeps the towers' new states for the next step, each where it is."""
        for tower, state in enumerate(states):
            for variable, value in zip(self.variables, tf.nest.flatten(state), strict=True):
                variable.write(tower, value)

    def reset(self) -> None:
        """Begins anew, with zeros."""
        for variable in self.variables:
            variable.assign(np.zeros(variable.shape, variable.dtype.as_numpy_dtype))

    def check_rows(self, shards: Sequence[Shard]) -> None:
        """Raises ValueError unless every row of a batch has its row of the state."""
        if not self.variables:
            return
        sizes = [tf.get_static_value(shard.size) for shard in shards]
        if all(size is not None for size in sizes) and list(map(int, sizes)) != self._rows:
            raise ValueError(
                f"Every batch must have the {sum(self._rows)} rows whose state is carried. "
                f"Received shards of {list(map(int, sizes))} rows for towers that carry "
                f"{self._rows}; drop a smaller last batch, or give carried_rows."
            )


class CarriedVariable:
    """One tensor of the state: the rows of a whole batch, each on its tower's device.

    A checkpoint saves and restores it as it does a variable, so that the rows find their towers
    whatever their number.

    Args:
        name: its name in a checkpoint.
        spec: of one row.
        rows: how many rows each tower has.
        devices: the towers' devices.
    """

    def __init__(self, name: str, spec: tf.TensorSpec, rows: list[int], devices: Sequence[str]):
        self.name = name
        self.shape = tf.TensorShape([sum(rows), *spec.shape])
        self.dtype = spec.dtype
        self.device = CPU  # Where the rows of all towers meet.
        self._devices = list(devices)
        self._parts = []
        for device, size in zip(devices, rows, strict=True):
            with tf.device(device):
                zeros = tf.zeros([size, *spec.shape], spec.dtype)
                self._parts.append(tf.Variable(zeros, trainable=False, name=name))

    def read(self, tower: int) -> tf.Tensor:
        """Returns a tower's rows; one row of zeros for one without, whose shards are empty."""
        part = self._parts[tower]
        if part.shape[0] == 0:
            return tf.zeros([1, *part.shape[1:]], part.dtype)
        return tf.convert_to_tensor(part)

    def write(self, tower: int, rows: tf.Tensor) -> None:
        """Keeps a tower's rows, without those that stand in for none in empty shards."""
        part = self._parts[tower]
        with tf.device(self._devices[tower]):
            part.assign(tf.ensure_shape(rows[: part.shape[0]], part.shape))

    def numpy(self) -> np.ndarray:
        """Returns the rows of all towers, in the order of the batch."""
        return np.concatenate([part.numpy() for part in self._parts])

    def assign(self, rows: np.ndarray) -> None:
        """Gives each tower its rows."""
        starts = np.cumsum([part.shape[0] for part in self._parts])[:-1]
        for tower, part in enumerate(np.split(rows, starts)):
            self.write(tower, tf.convert_to_tensor(part))


def check_specs(specs: Any, num_rows: int | None) -> None:
    """Raises ValueError unless there are specs of rows and their number, or neither."""
    if specs is None and num_rows is None:
        return
    parts = tf.nest.flatten(specs)
    known = all(isinstance(p, tf.TensorSpec) and p.shape.is_fully_defined() for p in parts)
    if not parts or not known:
        raise ValueError(
            "carried must be a nest of tf.TensorSpec, each the whole shape of one row. "
            f"Received {specs!r}."
        )
    if num_rows is None or num_rows < 1:
        raise ValueError(
            "carried_rows must be the number of rows that every batch has, because each row "
            f"has a state of its own. Received {num_rows}."
        )


def with_state(tower_fn: TowerFn, specs: Any) -> ShardFn:
    """Returns the tower function as a tower calls it: with the pair (batch, state).

    Args:
        tower_fn: `tower_fn(batch, state) -> (loss_sum, weight, metrics, state)`, or, where nothing
            is carried, `tower_fn(batch) -> (loss_sum, weight, metrics)`.
        specs: of a shard's state, () where nothing is carried.
    """

    def run(pair: tuple[Batch, State]) -> Any:
        batch, nothing = pair
        return check_results(tower_fn(batch)), nothing

    def run_with_state(pair: tuple[Batch, State]) -> Any:
        results = tower_fn(*pair)
        if not isinstance(results, tuple) or len(results) != 4:
            raise ValueError(
                "A tower function that carries a state returns (loss_sum, weight, metrics, "
                f"state). Received {results!r}."
            )
        return check_results(results[:3]), check_state(results[3], specs)

    return run_with_state if specs else run


def check_state(state: State, specs: Any) -> State:
    """Returns a new state as tensors; raises ValueError unless it is like the one before."""
    try:
        tf.nest.assert_same_structure(specs, state, check_types=False)
        values = [tf.convert_to_tensor(value) for value in tf.nest.flatten(state)]
        pairs = zip(tf.nest.flatten(specs), values, strict=True)
        same = all(spec.is_compatible_with(value) for spec, value in pairs)
    except (TypeError, ValueError):
        same = False
    if not same:
        raise ValueError(
            "The new state must have the structure, the dtypes and the shapes of the old one. "
            f"Expected {specs}. Received {state}."
        )
    return tf.nest.pack_sequence_as(specs, values)

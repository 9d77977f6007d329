"""The sum of gradients across towers by TensorFlow's collective ops: NCCL on GPUs, a ring on CPUs.

Each op names its group of devices and its turn in the group by numbers. They are given when a graph
is built, are the same on all devices of the group, and are never used twice.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from towers.ground.host import are_all, device_type
from towers.ground.private_apis import get_registered_kernels_for_op
from towers.travel.gradients import Gradient
from towers.travel.packed_sums import wrong_devices
from towers.travel.packing import cut_pack, join_pack, num_bytes, plan_packs

FIRST_KEY = 2**20  # Above the numbers that `tf.distribute` gives.
LOCAL_KEYS = 2**10  # So many groups can each process have of its own devices.
DTYPES = (tf.float16, tf.float32, tf.float64)  # Those that NCCL and the ring add.
LIMIT = 0.0  # Seconds until a sum that waits for a device fails; 0: none, XLA may compile first.
PACK_BYTES = 8 * 2**20  # Each op begins with the same wait for all devices.
CHECK_LIMIT = 120.0  # The limit while nothing but known values are summed.


class Packed(NamedTuple):
    """A tower's gradients as a group sums them.

    Attributes:
        packs: vectors on the tower's device; one op sums each.
        gradients: for each pack, the gradients that are in it by the indices of their variables.
        left: one per variable: a gradient that the group does not sum, or None.
    """

    packs: list[tf.Tensor]
    gradients: list[dict[int, Any]]
    left: list[Gradient]

    @property
    def entries(self) -> list[Gradient]:
        """Vectors and gradients that together have the entries of all gradients, and zeros."""
        return [*self.packs, *self.left]

    def unpacked(self, sums: Sequence[tf.Tensor]) -> list[Gradient]:
        """Returns the gradients in sums of the packs, one per variable; None where it was left."""
        found: list[Gradient] = [None] * len(self.left)
        for total, own in zip(sums, self.gradients, strict=True):
            for index, gradient in zip(own, cut_pack(total, list(own.values())), strict=True):
                found[index] = gradient
        return found


class Group:
    """Devices that sum vectors, with one collective op on each of them.

    Args:
        devices: the devices of this process, distinct and of one type.
        num_processes: how many processes have as many devices. They build the same sums in the
            same order.
        limit: as `LIMIT`.
        pack_bytes: the largest size of a pack in bytes; a larger gradient is a pack of its own.

    Attributes:
        size: the number of devices of all processes.
    """

    def __init__(
        self,
        devices: Sequence[str],
        num_processes: int = 1,
        limit: float | None = None,
        pack_bytes: int = PACK_BYTES,
    ):
        self.devices = tuple(devices)
        self.size = len(devices) * num_processes
        self._is_shared = num_processes > 1
        self._limit = LIMIT if limit is None else limit
        self._pack_bytes = pack_bytes
        self._key, self._turns = numbers_of_group(self.devices, num_processes)
        self._hint = "nccl" if are_all("GPU", devices) else "ring"

    def pack(self, tower_gradients: Sequence[Sequence[Gradient]]) -> list[Packed]:
        """Returns each tower's gradients in packs, those of the last variables first.

        The first packs are summed while the backward pass goes on. What is left: sparse gradients,
        those that some towers lack, and those of unknown shape.
        """
        columns = list(zip(*tower_gradients, strict=True))
        taken = [index for index, column in enumerate(columns) if can_be_summed(column)]
        parts: list[list[Any]] = [[row[index] for index in taken] for row in tower_gradients]
        plan = [[taken[index] for index in pack] for pack in plan_packs(parts, self._pack_bytes)]
        packed = []
        for device, row in zip(self.devices, tower_gradients, strict=True):
            gradients: list[dict[int, Any]] = [{index: row[index] for index in own} for own in plan]
            left = [None if index in taken else one for index, one in enumerate(row)]
            with tf.device(device):
                packs = [join_pack(list(own.values())) for own in gradients]
            packed.append(Packed(packs, gradients, left))
        return packed

    def sum_packed(self, packed: Sequence[Packed]) -> tuple[list[list[Gradient]], list[tf.Tensor]]:
        """Returns the sums over all devices on each of them, and the first device's as packs.

        Each tower has one op for a pack. A gradient that is left is None in the sums.
        """
        turns = list(itertools.islice(self._turns, len(packed[0].packs)))
        rows, totals = [], []
        for device, own in zip(self.devices, packed, strict=True):
            with tf.device(device):
                rows.append(self._sum_vectors(own.packs, turns))
                totals.append(own.unpacked(rows[-1]))
        return totals, rows[0]

    def _sum_vectors(self, vectors: Iterable[tf.Tensor], turns: Iterable[int]) -> list[tf.Tensor]:
        """Returns the sums of one device's vectors with those of the other devices."""
        sums: list[tf.Tensor] = []
        for vector, turn in zip(vectors, turns, strict=True):
            # In the same order in every process; within one, TensorFlow sees to it.
            with tf.control_dependencies(sums[-1:] if self._is_shared else []):
                # Not version 2 of the op: of that one, `tf.function` runs the ops of all devices
                # one after another, so that the first waits for the others without end.
                total = tf.raw_ops.CollectiveReduce(
                    input=vector,
                    group_size=self.size,
                    group_key=self._key,
                    instance_key=turn,
                    merge_op="Add",
                    final_op="Id",
                    subdiv_offsets=[0],
                    communication_hint=self._hint,
                    timeout_seconds=self._limit,
                )
            sums.append(total)
        return sums


@functools.cache
def numbers_of_group(devices: tuple[str, ...], num_processes: int) -> tuple[int, Iterator[int]]:
    """Returns the number of a group, and the numbers of its turns: once for the same devices.

    A group across processes has the same number in each: they make such groups in the same order.
    The others have numbers that no other process gives.
    """
    if num_processes > 1:
        return next(shared_groups), itertools.count(FIRST_KEY)
    task = tf.DeviceSpec.from_string(tf.config.list_logical_devices("CPU")[0].name).task or 0
    return FIRST_KEY + LOCAL_KEYS * (task + 1) + next(local_groups), itertools.count(FIRST_KEY)


shared_groups, local_groups = itertools.count(FIRST_KEY), itertools.count()


def can_be_summed(gradients: Sequence[Gradient]) -> bool:
    """Returns whether one variable's gradients are tensors that a collective op sums."""
    first: Any = gradients[0]
    return num_bytes(gradients) is not None and first.dtype in DTYPES


def check_group(devices: tuple[str, ...]) -> None:
    """Raises ValueError unless these devices can sum by collective ops, and says what to do."""
    fault = fault_of_group(devices)
    if fault is not None:
        nccl = "Install NCCL (`pip install tensorflow[and-cuda]` brings it), or use"
        use = nccl if are_all("GPU", devices) else "Use"
        raise ValueError(
            f"exchange='nccl' cannot sum between {', '.join(devices)}: {fault}. "
            f"{use} exchange='packs' (--exchange packs), which needs nothing."
        )


@functools.cache
def fault_of_group(devices: tuple[str, ...]) -> str | None:
    """Returns why these devices cannot sum by collective ops, or None; it lets them sum once."""
    types = {device_type(device) for device in devices}
    if len(set(devices)) < len(devices) or len(types) > 1:
        return "a group is of distinct devices of one type"
    if len(devices) == 1:
        return None
    if types == {"GPU"} and not has_nccl():
        return "this TensorFlow is built without NCCL"
    try:
        group = Group(devices, limit=CHECK_LIMIT)
        add = tf.function(lambda rows: group.sum_packed(group.pack(rows))[0], autograph=False)
        wrong = wrong_devices(devices, add)
    except tf.errors.OpError as error:
        return f"they failed to sum known values: {error.message.splitlines()[0]}"
    return f"sums of known values came out wrong on {', '.join(wrong)}" if wrong else None


def has_nccl() -> bool:
    """Returns whether TensorFlow has NCCL's kernels; its library is loaded when it is first used.

    Without them, TensorFlow would sum through the host.
    """
    found = get_registered_kernels_for_op("NcclAllReduce").kernel
    return any(kernel.device_type == "GPU" for kernel in found)

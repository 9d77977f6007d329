"""The exchange: sums over towers, copies of the variables and processes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from towers.devices.determinism import is_deterministic
from towers.devices.placement import Placement
from towers.processes.processes import Processes
from towers.step.carried import CarriedValues
from towers.step.sums import Denominators, TowerSums, add_nests, stack_nests
from towers.step.tower_function import TowerProgram
from towers.travel.collectives import Group
from towers.travel.gradients import Gradient, global_norm, identity, sum_gradients
from towers.travel.packed_sums import sum_in_packs
from towers.travel.packing import add_and_stack, download, needs_upload
from towers.travel.pairs import add_in_pairs
from towers.variables.shared_variables import SharedVariables


class Total(NamedTuple):
    """The sums over all towers of all processes, the input of an update.

    Attributes:
        sums: loss, weight, metrics, states and assigned values, as those of one tower.
        gradients: for each copy of the variables, the summed gradients, one per trainable
            variable.
        state_weight: scalar, the weight of the moving averages in the states.
        carried: for each tower, the state to carry into the next step.
        entries: vectors and gradients that together have the entries of the first copy's gradients,
            and zeros; a norm takes fewer kernels of packs than of what is in them.
        norms: [num_towers], the norm of each tower's own mean gradient; None if not computed.
    """

    sums: TowerSums
    gradients: Sequence[Sequence[Gradient]]
    state_weight: tf.Tensor
    carried: Sequence[CarriedValues]
    entries: Sequence[Gradient]
    norms: tf.Tensor | None = None


class Exchange:
    """Adds the towers' sums.

    Attributes:
        device: the parameter device, where the sums are added.
    """

    def __init__(self, placement: Placement, processes: Processes, program: TowerProgram):
        self.processes = processes
        self.device = placement.device
        self._devices = placement.devices
        self._copy_devices = placement.copy_devices
        self._group = group_of(placement, processes)
        self._batch_norm = program.options.batch_norm
        self._shared = program.shared
        indices = program.shared.stages.indices(program.shared.trainable)
        columns = zip(*placement.groups, strict=True), zip(*placement.copy_groups, strict=True)
        self._stages = list(zip(indices, *columns, strict=True))

    def sum(self, sums: Sequence[TowerSums]) -> tuple[Total, TowerSums]:
        """Returns the sums over the towers of all processes, and those of each tower.

        The latter are loss, weight and metrics; each begins with the dimension [num_towers].

        With a copy of the variables on each tower, and from GPUs to the CPU, all but gradients,
        carried and assigned values travels from a tower to the parameter device together. From
        GPUs to the CPU gradients travel in packs. Call it once in a step's graph.
        """
        sums = self._pack(sums)
        norms = self._norms(sums)
        with tf.device(self.device), tf.name_scope("exchange"):
            added, stacked = self._add_and_stack(sums, norms)
            (loss, weight, metrics, _, states), each = added, TowerSums(*stacked[:3])
            totals, packs = self._sum_packs(sums)
            gradients = self._sum_gradients(sums)
            state_weight = self._state_weight(weight, each)
            local = (loss, weight, metrics, gradients[0], states, state_weight)
            loss, weight, metrics, first, states, state_weight = self.processes.sum(local)
            gradients = gradients if self.processes.count == 1 else [first] * len(gradients)
            gradients, entries = list(map(merge, totals, gradients)), [*packs, *first]
        own = TowerSums(loss, weight, metrics, states=states, assigned=sums[0].assigned)
        carried = [tower.carried for tower in sums]
        return Total(own, gradients, state_weight, carried, entries, stacked[3]), each

    def _pack(self, sums: Sequence[TowerSums]) -> list[TowerSums]:
        """Returns the towers' sums, ready to be added: shapes known, gradients in packs."""
        for tower in sums:
            set_shapes(tower, self._shared)
        sums = with_all_states(sums, self._devices)
        if self._group is None:
            return sums
        with tf.name_scope("exchange"):
            packed = self._group.pack([tower.gradients for tower in sums])
        return [tower._replace(packed=own) for tower, own in zip(sums, packed, strict=True)]

    def _norms(self, sums: Sequence[TowerSums]) -> list[tf.Tensor] | None:
        """Returns the norm of each tower's gradient; one tower's is that of the average."""
        if len(sums) == 1 and self.processes.count == 1:
            return None
        with tf.name_scope("results"):
            return list(map(tower_norm, sums, self._devices))

    def _add_and_stack(
        self, sums: Sequence[TowerSums], norms: Sequence[tf.Tensor] | None
    ) -> tuple[Any, Any]:
        """Returns loss, weight, metrics, norms and states added, and all but the states stacked."""
        nests = [
            (tower.loss, tower.weight, tower.metrics, norm, tower.states)
            for tower, norm in zip(sums, norms or [None] * len(sums), strict=True)
        ]
        apart = len(self._copy_devices) > 1 or self._needs_download(self._devices[0])
        if apart and any(device != self.device for device in self._devices):
            return add_and_stack(nests, self._devices, self.device)
        return add_in_pairs(add_nests, nests), stack_nests([nest[:-1] for nest in nests])

    def _bring(self, gradients: Sequence[Gradient], device: str) -> Sequence[Gradient]:
        """Returns gradients of a device, on the CPU if they are added there."""
        needs = self._needs_download(device)
        return download(gradients, device, self.device) if needs else gradients

    def _needs_download(self, device: str) -> bool:
        """Returns whether the variables are on the CPU and the tower is on a GPU."""
        return len(self._copy_devices) == 1 and needs_upload(self.device, device)

    def _state_weight(self, weight: tf.Tensor, each: TowerSums) -> tf.Tensor:
        """Returns the weight of the moving averages that the towers of this process give."""
        if self._batch_norm == "mean":
            return weight
        return each.weight[0] if self.processes.is_chief else tf.zeros_like(weight)

    def sum_denominators(self, parts: Sequence[Denominators]) -> Denominators:
        """Returns what the losses are divided by, over the towers of all processes."""
        with tf.device(self.device), tf.name_scope("denominators"):
            return self.processes.sum(add_in_pairs(add_nests, parts))

    def _sum_packs(self, sums: Sequence[TowerSums]) -> tuple[list[list[Gradient]], list[tf.Tensor]]:
        """Returns what a group sums over all processes, for each copy, and the first's packs."""
        if self._group is None:
            return [[None] * len(sums[0].gradients) for _ in self._copy_devices], []
        return self._group.sum_packed([tower.packed for tower in sums if tower.packed])

    def _sum_gradients(self, sums: Sequence[TowerSums]) -> list[list[Gradient]]:
        """Returns, for each copy of the variables, the sums of the gradients that are in no pack.

        Each stage sums its own, on its devices.
        """
        rows = [tower.gradients if tower.packed is None else tower.packed.left for tower in sums]
        found: dict[int, Sequence[Gradient]] = {}  # By the variable's index, for each copy.
        for indices, towers, copies in self._stages:
            own = [
                self._bring([row[index] for index in indices], tower)
                for row, tower in zip(rows, towers, strict=True)
            ]
            with tf.device(copies[0]):
                summed = sum_between(own, copies)
            found |= zip(indices, zip(*summed, strict=True), strict=True)
        return [list(copy) for copy in zip(*map(found.get, range(len(found))), strict=True)]


def sum_between(
    tower_gradients: Sequence[Sequence[Gradient]], copy_devices: Sequence[str]
) -> list[list[Gradient]]:
    """Returns, for each copy's device, the gradients summed over the towers."""
    if len(tower_gradients) == 1:  # Each travels once, however often it is used.
        return [list(map(identity, tower_gradients[0]))]
    if len(copy_devices) == 1:
        return [sum_gradients(tower_gradients)]
    return sum_in_packs(tower_gradients, copy_devices)


def group_of(placement: Placement, processes: Processes) -> Group | None:
    """Returns what sums dense gradients, or None for copies between devices.

    Raises:
        ValueError: this process is deterministic.
    """
    if placement.exchange == "packs" or len(placement.devices) * processes.count == 1:
        return None
    if is_deterministic():
        raise ValueError(
            "A deterministic step gets the same bits on any number of towers. Received "
            f"exchange={placement.exchange!r}, whose order of adding depends on that number, after "
            "enable_determinism(); use exchange='packs' (--exchange packs)."
        )
    return Group(placement.devices, processes.count)


def tower_norm(tower: TowerSums, device: str) -> tf.Tensor:
    """Returns the norm of a tower's mean gradient; NaN or infinity names the tower at fault."""
    with tf.device(device):  # The gradients are there.
        norm = global_norm(tower.entries, tower.weight.dtype)
        return norm * tf.math.reciprocal_no_nan(tower.weight)


def merge(totals: list[Gradient], others: list[Gradient]) -> list[Gradient]:
    """Returns the gradients of both lists; of each variable, at least one has None."""
    pairs = zip(totals, others, strict=True)
    return [other if total is None else total for total, other in pairs]


def with_all_states(sums: Sequence[TowerSums], devices: Sequence[str]) -> list[TowerSums]:
    """Returns the towers' sums with the same states in each: what one lacks is zeros."""
    columns = list(zip(*(tower.states for tower in sums), strict=True))
    like = [next((one for one in column if one is not None), None) for column in columns]
    filled = []
    for tower, device in zip(sums, devices, strict=True):
        with tf.device(device):
            states = [
                tf.zeros_like(other) if own is None and other is not None else own
                for own, other in zip(tower.states, like, strict=True)
            ]
        filled.append(tower._replace(states=states))
    return filled


def set_shapes(sums: TowerSums, shared: SharedVariables) -> None:
    """Tells TensorFlow the shapes of gradients and states, which it does not always infer."""
    variables = [*shared.trainable, *shared.states]
    for variable, value in zip(variables, [*sums.gradients, *sums.states], strict=True):
        if isinstance(value, tf.Tensor):
            value.set_shape(variable.shape)

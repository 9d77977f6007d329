"""Placement: the devices of the towers and of the shared variables, checked once."""

from __future__ import annotations

import contextlib
import dataclasses
import numbers
import warnings
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import keras
import tensorflow as tf

from towers.devices.kernels import warn_of_slow_kernels
from towers.devices.op_devices import device_name
from towers.devices.stages import StageOf, Stages
from towers.ground.arguments import check_choice
from towers.ground.host import HOST
from towers.ground.private_apis import store_value
from towers.travel.collectives import check_group
from towers.travel.packed_sums import wrong_sums

POLICIES = ("auto", "cpu", "tower0", "replicated")
EXCHANGES = ("packs", "nccl")
MOST_TOWERS = 1024  # Each tower costs a graph.


@dataclasses.dataclass(frozen=True)
class Placement:
    """The devices of the towers, and where the shared variables live.

    Args:
        devices: a TensorFlow device name for each tower, in tower order. A tower that is too large
            for one device has a sequence of them, all towers equally many: each runs one stage, a
            part of the layers.
        parameters: where the shared variables live:
            `cpu`: on the CPU;
            `tower0`: on the first tower's device;
            `replicated`: on the first tower's device, with a copy on every other tower; gradients
            travel between the towers, and all copies get the same update;
            `auto`: on the tower's device for one tower, on the CPU for several.
            If devices do not copy values correctly, `replicated` becomes `cpu`, with a
            RuntimeWarning.
        exchange: how gradients are summed between copies of the variables:
            `packs`: by copies between the devices, some megabytes at a time, while others are
            computed; the sums do not depend on the number of towers (`enable_determinism`);
            `nccl`: by collective ops, some megabytes at a time: NCCL's on GPUs, a ring on CPUs,
            across processes too. `auto` parameters are `replicated` then.
        stage_of: for towers of several devices, the function that returns a layer's stage, from 0,
            or None for that of the layer around. By default, the layers are cut in the order of
            `model.layers`, or of the blocks that a `model.layers_in_order()` returns, so that the
            largest stage is small. What is computed between layers stays with the layer before.

    Attributes:
        devices: each tower's device, the first of several.
        groups: each tower's devices.
        parameters, exchange, stage_of: as given.

    Raises:
        ValueError: there is no device, no such policy or exchange, or collective ops cannot sum on
            these devices.

    >>> Placement(["/GPU:0", "/GPU:1"]).device, Placement(["/GPU:0"]).device
    ('/CPU:0', '/GPU:0')
    """

    devices: Sequence[Any]
    parameters: str = "auto"
    exchange: str = "packs"
    stage_of: StageOf | None = None
    groups: tuple[tuple[str, ...], ...] = dataclasses.field(init=False)

    def __post_init__(self) -> None:
        check_choice("parameters", self.parameters, POLICIES)
        groups, policy = groups_of(self.devices), self.parameters
        object.__setattr__(self, "groups", groups)
        check_choice("exchange", self.exchange, EXCHANGES)
        by_group = self.exchange == "nccl"
        if by_group:
            self.check_one_device(f"exchange={self.exchange!r}")
            if policy not in ("auto", "replicated"):
                raise ValueError(
                    f"exchange={self.exchange!r} sums between copies of the variables on the "
                    "towers, so parameters must be 'auto' or 'replicated'. Received "
                    f"parameters={policy!r}; leave one of them out."
                )
            policy = "replicated"
        for stage in zip(*groups, strict=True):  # Copies travel between equal stages.
            policy = trusted_policy(policy, stage)
        object.__setattr__(self, "devices", tuple(group[0] for group in groups))
        object.__setattr__(self, "parameters", policy)
        if policy != "replicated":
            object.__setattr__(self, "exchange", "packs")
        elif by_group:
            check_group(tuple(self.devices))

    @property
    def device(self) -> str:
        """The parameter device: the device of the variables, or of their first copy."""
        return self.copy_groups[0][0]

    @property
    def on_tower(self) -> bool:
        """Whether the variables live on the first tower, or on each."""
        alone = self.parameters == "auto" and len(self.devices) == 1
        return alone or self.parameters in ("tower0", "replicated")

    @property
    def num_stages(self) -> int:
        """How many devices each tower has."""
        return len(self.groups[0])

    @property
    def copy_devices(self) -> tuple[str, ...]:
        """The device of each copy of the variables: the parameter device, or every tower's."""
        return tuple(group[0] for group in self.copy_groups)

    @property
    def copy_groups(self) -> tuple[tuple[str, ...], ...]:
        """The devices of each copy of the variables, one for each stage."""
        if not self.on_tower:
            return ((HOST,) * self.num_stages,)
        return self.groups if self.parameters == "replicated" else self.groups[:1]

    @contextlib.contextmanager
    def scope(self) -> Iterator[None]:
        """The scope in which to make the model and the optimizer, on the parameter device.

        For towers of several devices it is the CPU, from which `place` moves the variables.
        """
        with tf.device(self.device if self.num_stages == 1 else HOST):
            yield

    def first(self, num_towers: int | None) -> Placement:
        """Returns the placement of its first towers; None for all."""
        groups = self.groups[:num_towers]
        return Placement(groups, self.parameters, self.exchange, self.stage_of)

    def place(self, model: Any) -> Stages:
        """Returns the stages of a built model, whose variables move to the devices of theirs.

        A step does so itself. Call it before anything else uses the model, such as a `tf.function`:
        it makes new variables. With parameters on the CPU, or one device a tower, nothing moves.

        Raises:
            ValueError: there is no model, it has too few layers, or a stage has no variables.
        """
        if self.num_stages == 1:
            return Stages()
        if not isinstance(model, keras.layers.Layer):
            raise ValueError(
                "Towers of several devices need the model itself as `variables`, whose layers "
                f"are asked for their stages. Received {type(model).__name__}."
            )
        stages = Stages(model, self.num_stages, self.stage_of)
        for variable in model.variables if self.on_tower else ():
            move(variable, self.groups[0][stages.of(variable) or 0])
        return stages

    def check_one_device(self, what: str) -> None:
        """Raises ValueError if each tower has several devices, which something cannot use."""
        if self.num_stages > 1:
            raise ValueError(
                f"{what} needs towers of one device each. Received "
                f"{[list(group) for group in self.groups]}; leave it out, or give each tower one."
            )


def move(variable: keras.Variable, device: str) -> None:
    """Moves a Keras variable to another device, as a new `tf.Variable` of its name and value."""
    source = variable.value
    if device_name(source.device) == device_name(device):
        return
    with tf.device(device):
        moved = tf.Variable(
            source,
            trainable=source.trainable,
            name=source.name.partition(":")[0],
            dtype=source.dtype,
        )
    store_value(variable, moved)


def trusted_policy(policy: str, devices: tuple[str, ...]) -> str:
    """Returns the policy, or `cpu` with a warning if `replicated` would copy values wrongly."""
    wrong = wrong_sums(devices) if policy == "replicated" else []
    if not wrong:
        return policy
    warnings.warn(
        f"Known values that were summed between {', '.join(devices)} came out wrong on "
        f"{', '.join(wrong)}: copies between these devices cannot be trusted (on many machines "
        "the IOMMU or PCI access control has to be off for them). The parameters stay on the "
        "CPU instead, as with --parameters cpu.",
        RuntimeWarning,
        stacklevel=4,
    )
    return "cpu"


def tower_devices(towers: int | Sequence[str] | None) -> Sequence[str]:
    """Returns the towers' devices, of those that TensorFlow has already.

    Args:
        towers: device names; a number of GPUs, or, without GPUs, of towers on the CPU; None: all
            GPUs, or one tower on the CPU.
    """
    if not isinstance(towers, (str, numbers.Integral, type(None))) and isinstance(towers, Iterable):
        return towers
    if not isinstance(towers, (numbers.Integral, type(None))) or isinstance(towers, bool):
        raise ValueError(f"towers takes a number or a list of device names. Received {towers!r}.")
    gpus = tf.config.list_logical_devices("GPU")
    count, most = int(max(len(gpus), 1) if towers is None else towers), len(gpus) or MOST_TOWERS
    if not 1 <= count <= most:
        several = (
            ", the number of GPUs. Name the devices to have several towers on one, such as "
            "['/GPU:0', '/GPU:0']"
        )
        raise ValueError(
            f"towers must be from 1 to {most}{several if gpus else ''}. Received {towers}."
        )
    if gpus:
        return [f"/GPU:{index}" for index in range(count)]
    warn_of_slow_kernels()
    cpus = len(tf.config.list_logical_devices("CPU"))  # One, unless `select_devices` made more.
    return [f"/CPU:{index + 1}" if 1 < count < cpus else HOST for index in range(count)]


def groups_of(devices: object) -> tuple[tuple[str, ...], ...]:
    """Returns each tower's devices; raises ValueError unless all towers have equally many."""
    if isinstance(devices, (list, tuple)):  # TensorFlow's devices are tuples of name and type.
        logical = tf.config.LogicalDevice
        devices = [one.name if isinstance(one, logical) else one for one in devices]
    is_nested = isinstance(devices, list) and any(
        isinstance(one, (list, tuple)) and not isinstance(one, tf.config.PhysicalDevice)
        for one in devices
    )
    if not is_nested:
        check_devices(devices)
    groups = [tuple(one) if is_nested else (one,) for one in devices]  # type: ignore[attr-defined]
    for group in groups:
        check_devices(group)
    if len(set(map(len, groups))) > 1 or any(len(set(group)) < len(group) for group in groups):
        raise ValueError(
            "Towers of several devices have equally many different ones. Received "
            f"{[list(group) for group in groups]}."
        )
    return tuple(groups)


def check_devices(devices: object) -> None:
    """Raises ValueError unless `devices` is a sequence of at least one device name."""
    is_sequence = isinstance(devices, (list, tuple)) and all(isinstance(d, str) for d in devices)
    if not is_sequence or not devices:
        raise ValueError(
            "devices must be a sequence of device names, one per tower, such as "
            f"towers.select_devices(2).towers. Received {devices!r}."
        )


def check_present(devices: Iterable[str]) -> None:
    """Raises ValueError for a device that is not there, which TensorFlow would replace by a CPU.

    A step may be traced for other devices than those of this machine, but not run.
    """
    known = {device_name(device.name) for device in tf.config.list_logical_devices()}
    for name in devices:
        if device_name(name) not in known:
            raise ValueError(
                f"There is no device {name!r}. TensorFlow has {', '.join(sorted(known))}: name "
                "some of these, or make more of the CPU with towers.select_devices."
            )

"""Placement: the devices of the towers and of the shared variables, checked once."""

from __future__ import annotations

import contextlib
import dataclasses
import warnings
from collections.abc import Iterator, Sequence

import tensorflow as tf

from towers.step.collectives import are_gpus, fault_of_group
from towers.step.packs import wrong_sums

CPU = "/CPU:0"
POLICIES = ("auto", "cpu", "tower0", "replicated")
EXCHANGES = ("packs", "nccl")


@dataclasses.dataclass(frozen=True)
class Placement:
    """The devices of the towers, and where the shared variables live.

    Args:
        devices: a TensorFlow device name for each tower, in tower order.
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
            `nccl`: by one collective op a tower for each dtype, NCCL's on GPUs and a ring on CPUs,
            across processes too. `auto` parameters are `replicated` then.

    Raises:
        ValueError: there is no device, no such policy or exchange, or collective ops cannot sum on
            these devices.

    >>> Placement(["/GPU:0", "/GPU:1"]).device, Placement(["/GPU:0"]).device
    ('/CPU:0', '/GPU:0')
    """

    devices: Sequence[str]
    parameters: str = "auto"
    exchange: str = "packs"

    def __post_init__(self) -> None:
        check_devices(self.devices)
        if self.parameters not in POLICIES:
            raise ValueError(
                f"parameters must be one of {', '.join(POLICIES)}. Received {self.parameters!r}."
            )
        check_exchange(self.exchange, self.parameters)
        devices, policy = tuple(self.devices), self.parameters
        policy = trusted_policy("replicated" if self.exchange == "nccl" else policy, devices)
        object.__setattr__(self, "devices", devices)
        object.__setattr__(self, "parameters", policy)
        if policy != "replicated":
            object.__setattr__(self, "exchange", "packs")
        if self.exchange == "nccl":
            check_group(devices)

    @property
    def device(self) -> str:
        """The parameter device: the device of the variables, or of their first copy."""
        on_tower = self.parameters in ("tower0", "replicated")
        alone = self.parameters == "auto" and len(self.devices) == 1
        return self.devices[0] if on_tower or alone else CPU

    @property
    def copy_devices(self) -> tuple[str, ...]:
        """The device of each copy of the variables: the parameter device, or every tower's."""
        return tuple(self.devices) if self.parameters == "replicated" else (self.device,)

    @contextlib.contextmanager
    def scope(self) -> Iterator[None]:
        """The scope in which to make the model and the optimizer, on the parameter device."""
        with tf.device(self.device):
            yield


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


def check_exchange(exchange: str, policy: str) -> None:
    """Raises ValueError unless there is such an exchange, and copies that it can sum between."""
    if exchange not in EXCHANGES:
        raise ValueError(f"exchange must be one of {', '.join(EXCHANGES)}. Received {exchange!r}.")
    if exchange == "nccl" and policy not in ("auto", "replicated"):
        raise ValueError(
            "exchange='nccl' sums between copies of the variables on the towers, so parameters "
            f"must be 'auto' or 'replicated'. Received parameters={policy!r}; leave one of them "
            "out."
        )


def check_group(devices: tuple[str, ...]) -> None:
    """Raises ValueError unless collective ops sum on these devices, and says what to do."""
    fault = fault_of_group(devices)
    if fault is not None:
        install = "Install NCCL (`pip install tensorflow[and-cuda]` brings it), or use"
        raise ValueError(
            f"exchange='nccl' needs collective ops between all towers. Received "
            f"{', '.join(devices)}: {fault}. {install if are_gpus(devices) else 'Use'} "
            "exchange='packs' (--exchange packs), which needs nothing."
        )


def check_devices(devices: object) -> None:
    """Raises ValueError unless `devices` is a sequence of at least one device name."""
    is_sequence = isinstance(devices, (list, tuple)) and all(isinstance(d, str) for d in devices)
    if not is_sequence or not devices:
        raise ValueError(
            f"devices must be a sequence of device names, one per tower. Received {devices!r}."
        )

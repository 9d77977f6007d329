"""Placement: the towers' devices and where the shared variables live, checked once."""

from __future__ import annotations

import contextlib
import dataclasses
import warnings
from collections.abc import Iterator, Sequence

import tensorflow as tf

from towers.step.packs import wrong_sums

CPU = "/CPU:0"
POLICIES = ("auto", "cpu", "tower0", "replicated")


@dataclasses.dataclass(frozen=True)
class Placement:
    """On which devices the towers run, and where the variables live that they share.

    Args:
        devices: a TensorFlow device name for each tower, in tower order.
        parameters: where the shared variables live: `cpu`; `tower0`, the first tower's device;
            `replicated`, there as well, with a copy on every other tower, each updated alike
            from gradients that travel between the towers; or `auto`, the CPU where several
            towers share the variables, the tower's own device where there is only one. Devices
            that do not copy values correctly turn `replicated` into `cpu`, with a
            RuntimeWarning.

    Raises:
        ValueError: there is no device, or no such policy.

    >>> Placement(["/GPU:0", "/GPU:1"]).device, Placement(["/GPU:0"]).device
    ('/CPU:0', '/GPU:0')
    """

    devices: Sequence[str]
    parameters: str = "auto"

    def __post_init__(self) -> None:
        check_devices(self.devices)
        if self.parameters not in POLICIES:
            raise ValueError(
                f"parameters must be one of {', '.join(POLICIES)}. Received {self.parameters!r}."
            )
        object.__setattr__(self, "devices", tuple(self.devices))
        object.__setattr__(self, "parameters", trusted_policy(self.parameters, tuple(self.devices)))

    @property
    def device(self) -> str:
        """The parameter device: where the variables are, or the first copy of them."""
        on_tower = self.parameters in ("tower0", "replicated")
        alone = self.parameters == "auto" and len(self.devices) == 1
        return self.devices[0] if on_tower or alone else CPU

    @property
    def copy_devices(self) -> tuple[str, ...]:
        """Where the copies of the variables are: the parameter device, or every tower's."""
        return tuple(self.devices) if self.parameters == "replicated" else (self.device,)

    @contextlib.contextmanager
    def scope(self) -> Iterator[None]:
        """The scope in which to make a model and an optimizer, whose variables the towers share."""
        with tf.device(self.device):
            yield


def trusted_policy(policy: str, devices: tuple[str, ...]) -> str:
    """Returns the policy; `cpu`, with a warning, where `replicated` would copy values wrongly."""
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


def check_devices(devices: object) -> None:
    """Raises ValueError unless there is a sequence of device names."""
    is_sequence = isinstance(devices, (list, tuple)) and all(isinstance(d, str) for d in devices)
    if not is_sequence or not devices:
        raise ValueError(
            f"devices must be a sequence of device names, one per tower. Received {devices!r}."
        )

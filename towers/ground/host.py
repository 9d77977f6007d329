"""The host's name, the CPU that runs the program beside whatever GPUs, and the type in a name."""

from __future__ import annotations

from collections.abc import Iterable

HOST = "/CPU:0"


def device_type(name: str) -> str | None:
    """Returns the type in a device's name, such as CPU; None for a name that leaves it open."""
    import tensorflow as tf

    found: str | None = tf.DeviceSpec.from_string(name).device_type
    return found


def are_all(kind: str, devices: Iterable[str]) -> bool:
    """Returns whether the names of all devices say that they are of this type."""
    return all(device_type(device) == kind for device in devices)

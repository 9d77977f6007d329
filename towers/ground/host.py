"""The host's name, the CPU that runs the program beside whatever GPUs, and the type in a name."""

from __future__ import annotations

HOST = "/CPU:0"


def device_type(name: str) -> str | None:
    """Returns the type in a device's name, such as CPU; None for a name that leaves it open."""
    import tensorflow as tf

    found: str | None = tf.DeviceSpec.from_string(name).device_type
    return found

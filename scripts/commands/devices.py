"""`towers devices`: the devices that TensorFlow finds on this machine."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
from typing import Any

from towers.scripts.options.flags import add_flags, read_options
from towers.scripts.quiet import import_tensorflow_quietly
from towers.scripts.shown import show


@dataclasses.dataclass(frozen=True)
class DevicesOptions:
    """What is printed.

    Attributes:
        json: print one JSON object as the last line.
    """

    json: bool = False


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options of the command."""
    add_flags(parser, DevicesOptions)


def run(given: argparse.Namespace) -> int:
    """Prints a line per device, and with --json one object in the last line."""
    import_tensorflow_quietly()
    found = find_devices()
    for kind, devices in found.items():
        for device in devices:
            place = f", PCI {device['pci']}" if "pci" in device else ""
            show(f"{kind} {device['number']}: {device['name']}{place}")
    if not found["GPU"]:
        show("no GPU: towers run on virtual CPUs")
    if read_options(DevicesOptions, given).json:
        show(json.dumps(found))
    return 0


def find_devices() -> dict[str, list[dict[str, Any]]]:
    """Returns the physical devices by kind, without touching the memory of a GPU.

    A device has its product name, or TensorFlow's name if the product is unknown; a GPU also has
    its PCI id, by which `nvidia-smi` knows it, if the driver tells it.
    """
    import tensorflow as tf

    return {
        kind: [
            describe_device(device, number)
            for number, device in enumerate(tf.config.list_physical_devices(kind))
        ]
        for kind in ("CPU", "GPU")
    }


def describe_device(device: Any, number: int) -> dict[str, Any]:
    """Returns the number, the name and, if it is known, the PCI id of a physical device."""
    import tensorflow as tf

    import towers

    details = tf.config.experimental.get_device_details(device)
    described = {"number": number, "name": details.get("device_name", device.name)}
    if device.device_type == "GPU":
        with contextlib.suppress(OSError):
            described["pci"] = towers.devices.pci_id(number)
    return described

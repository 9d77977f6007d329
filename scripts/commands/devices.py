"""`towers devices`: the devices that TensorFlow finds on this machine."""

from __future__ import annotations

import argparse
import json
from typing import Any

from towers.scripts.commands.options import add_json_option
from towers.scripts.quiet import import_tensorflow_quietly
from towers.scripts.shown import show


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options of the command."""
    add_json_option(parser)


def run(given: argparse.Namespace) -> int:
    """Prints a line per device, and with --json one object in the last line."""
    import_tensorflow_quietly()
    found = find_devices()
    for kind, devices in found.items():
        for device in devices:
            show(f"{kind} {device['number']}: {device['name']}")
    if not found["GPU"]:
        show("no GPU: towers run on virtual CPUs")
    if given.json:
        show(json.dumps(found))
    return 0


def find_devices() -> dict[str, list[dict[str, Any]]]:
    """Returns the physical devices by kind, without touching the memory of a GPU.

    A device has its product name, or TensorFlow's name if the product is unknown.
    """
    import tensorflow as tf

    return {
        kind: [
            {
                "number": number,
                "name": tf.config.experimental.get_device_details(device).get(
                    "device_name", device.name
                ),
            }
            for number, device in enumerate(tf.config.list_physical_devices(kind))
        ]
        for kind in ("CPU", "GPU")
    }

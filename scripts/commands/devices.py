"""`towers devices`: what TensorFlow finds on this machine."""

from __future__ import annotations

import argparse
import json
from typing import Any

import tensorflow as tf


def run(options: argparse.Namespace) -> int:
    """Prints a line per device, and with --json one object in the last line."""
    found = find_devices()
    for kind, devices in found.items():
        for device in devices:
            print(f"{kind} {device['number']}: {device['name']}")
    if not found["GPU"]:
        print("no GPU: towers run on virtual CPUs")
    if options.json:
        print(json.dumps(found))
    return 0


def find_devices() -> dict[str, list[dict[str, Any]]]:
    """Returns the physical devices by kind, without touching the memory of a GPU."""
    return {
        kind: [
            {"number": number, "name": describe(device)}
            for number, device in enumerate(tf.config.list_physical_devices(kind))
        ]
        for kind in ("CPU", "GPU")
    }


def describe(device: tf.config.PhysicalDevice) -> str:
    """Returns the product name of a device, or TensorFlow's name for it."""
    details = tf.config.experimental.get_device_details(device)
    return details.get("device_name", device.name)

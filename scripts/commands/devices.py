"""`towers devices`: the devices that TensorFlow finds on this machine."""

from __future__ import annotations

import argparse
import json

from towers.scripts.commands.options import add_json_option
from towers.scripts.quiet import import_tensorflow_quietly
from towers.scripts.shown import show


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options of the command."""
    add_json_option(parser)


def run(given: argparse.Namespace) -> int:
    """Prints a line per device, and with --json one object in the last line."""
    import_tensorflow_quietly()
    from towers.scripts.diagnosis.findings import find_devices

    found = find_devices()
    for kind, devices in found.items():
        for device in devices:
            place = f", PCI {device['pci']}" if "pci" in device else ""
            show(f"{kind} {device['number']}: {device['name']}{place}")
    if not found["GPU"]:
        show("no GPU: towers run on virtual CPUs")
    if given.json:
        show(json.dumps(found))
    return 0

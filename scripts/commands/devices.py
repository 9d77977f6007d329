"""`towers devices`: the devices that TensorFlow finds on this machine.

towers devices
towers devices --json
"""

from __future__ import annotations

import dataclasses

from towers.ground.quiet import import_tensorflow_quietly
from towers.scripts.shown import show, show_json


@dataclasses.dataclass(frozen=True)
class DevicesOptions:
    """What is printed.

    Attributes:
        json: print one JSON object instead of the lines.
    """

    json: bool = False


def run(options: DevicesOptions) -> int:
    """Prints a line per device, or with --json one object."""
    import_tensorflow_quietly()
    from towers.scripts.diagnosis.findings import find_devices

    found = find_devices()
    if options.json:
        show_json(found)
        return 0
    for kind, devices in found.items():
        for device in devices:
            address = f", PCI {device['pci']}" if "pci" in device else ""
            show(f"{kind} {device['number']}: {device['name']}{address}")
    if not found["GPU"]:
        show("no GPU: towers run on virtual CPUs")
    return 0
